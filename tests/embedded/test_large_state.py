"""State larger than the memory that a process may have: RocksDB finishes, and its snapshot restores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from abs_testing.fakes import FakeTarget

pytestmark = pytest.mark.campaign
SCRIPT = Path(__file__).parent / "jobs" / "large_state.py"
LIMIT_MB, ENTRIES = 400, 500_000
"""500 MB of values in a process that may map 400 MB more than its imports take."""


def job(folder: Path, kind: str, limit_mb: int) -> subprocess.CompletedProcess[str]:
    # One arena: others would take address space that nobody uses.
    own = {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    arguments = [str(SCRIPT), str(folder), kind, str(limit_mb), str(ENTRIES)]
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def found_again(folder: Path) -> int:
    """How many entries were there the second time as they had been put the first time."""
    with FakeTarget(folder / "target.db").transaction() as db:
        return int(db.execute("SELECT sum(CAST(value AS integer)) FROM data").fetchone()[0] or 0)


def test_rocksdb_keeps_more_state_than_memory_and_restores_it(tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        run = job(tmp_path, "rocks", LIMIT_MB)
        assert run.returncode == 0, run.stderr
        said.append(json.loads(run.stdout))
    assert said[0]["stopped"]
    assert said[1]["went on"]
    assert found_again(tmp_path) == ENTRIES
    blobs = (path.stat().st_size for path in (tmp_path / "snapshots" / "blobs").rglob("*"))
    assert sum(blobs) > LIMIT_MB * 1_000_000


def test_the_heap_dies_of_it_and_finishes_the_same_job_with_enough_memory(tmp_path: Path) -> None:
    poor, rich = tmp_path / "poor", tmp_path / "rich"
    poor.mkdir()
    rich.mkdir()
    # How it dies depends on who asks for memory first: Arrow, NumPy, or a thread that is to start.
    assert job(poor, "heap", LIMIT_MB).returncode != 0
    assert found_again(poor) == 0
    for _ in range(2):
        run = job(rich, "heap", 10 * LIMIT_MB)
        assert run.returncode == 0, run.stderr
    assert found_again(rich) == ENTRIES
