"""The whole demo, small: through the command line, with real SIGKILLs and a real audit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(600)]

DEADLINE_S = 500
INTERRUPTED = 130


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the demo puts its files; open to the user that PostgreSQL runs as under root."""
    folder = Path(tempfile.mkdtemp(prefix="abs-test-demo-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def _start(scratch: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from abs_cli.main import main; main()", "demo", *arguments],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _demo(scratch: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    process = _start(scratch, "--json", *arguments)
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert out, err
    return process.returncode, json.loads(out), err


def _left_in(scratch: Path) -> list[str]:
    """Files of the demo, and processes that work on them; the server's binaries may stay."""
    files = [path.name for path in scratch.iterdir() if not path.name.startswith("abs-sinks-")]
    return files + [str(process) for process in _processes_of(scratch)]


def _processes_of(scratch: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(scratch) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_job_that_is_killed_twice_writes_every_flight_exactly_once(scratch: Path) -> None:
    code, result, said = _demo(scratch, "--days", "40", "--kills", "2", "--seed", "7")
    assert (code, result["clean"], result["shortcomings"]) == (0, True, []), said
    kills = result["kills_done"]
    assert len(kills) == 2
    assert "committed" in [kill["found"] for kill in kills]
    # Driver, JVM, Python workers: all of the tree, not just its root.
    assert all(kill["processes"] >= 4 for kill in kills)
    audit = result["audit"]
    assert audit["expected"]["records"] == audit["actual"]["records"] == result["rows"] > 30_000
    assert [audit[k] for k in ("missing", "duplicate", "unexpected", "corrupted")] == [0] * 4
    assert audit["left_behind"]["prepared"] == []
    assert f"SIGKILL #2 {kills[1]['story']}" in said
    assert _left_in(scratch) == []


def test_the_same_kill_of_a_plain_writer_is_found_by_the_audit(scratch: Path) -> None:
    code, result, said = _demo(scratch, "--unsafe", "--days", "32", "--kills", "1", "--seed", "7")
    assert code == 1, said
    assert not result["clean"]
    assert result["audit"]["duplicate"] > 1_000
    assert result["audit"]["missing"] == result["audit"]["corrupted"] == 0
    assert _left_in(scratch) == []


def test_an_interrupted_demo_leaves_nothing_behind(scratch: Path) -> None:
    process = _start(scratch, "--days", "365", "--seed", "7")
    try:
        give_up = time.monotonic() + 120
        while not _jvms(scratch) and time.monotonic() < give_up:
            assert process.poll() is None
            time.sleep(0.05)
        assert _jvms(scratch)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == INTERRUPTED, (out, err)
    assert _left_in(scratch) == []


def _jvms(scratch: Path) -> list[psutil.Process]:
    return [process for process in _processes_of(scratch) if process.name() == "java"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--protocol", "3pc"], "choose from 2pc, wal, idempotent"),
        (["--days", "366"], "choose from 1 to 365"),
        (["--days", "20", "--kills", "5"], "have room for 1"),
    ],
)
def test_a_demo_that_makes_no_sense_is_refused_before_anything_starts(
    arguments: list[str], said: str, scratch: Path
) -> None:
    process = _start(scratch, *arguments)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said in " ".join(err.split())
    assert list(scratch.iterdir()) == []
