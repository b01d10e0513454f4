"""A job that is killed at any moment finds its last completed checkpoint, whole."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from abs_embedded.state.local_store import LocalSnapshotStore
from tests import sample

from .state_job import KEYS, opened

pytestmark = pytest.mark.long

KILLS = 6
PROGRAM = Path(__file__).parent / "state_job.py"


@sample.cases(1)
@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
def test_a_killed_job_finds_its_last_completed_checkpoint(kind: str, tmp_path: Path) -> None:
    folder, rng = tmp_path / "store", random.Random(7)
    for kill in range(KILLS):
        told = _killed_after(kind, folder, tmp_path / f"db{kill}", rng.uniform(0, 0.06))
        store = LocalSnapshotStore(folder)
        last = max(store.completed())
        assert last >= told, f"checkpoint {told} was told to be complete, and is not there"
        backend = opened(kind, store, tmp_path / "look")
        values = backend.table("count", "value:bytes").get_many(KEYS)
        backend.close()
        assert set(values[::2]) == {b"%d" % last}, f"kill {kill}: torn, or another checkpoint's"
        assert set(values[1::2]) == ({b"%d" % (last - last % 2)} if last > 1 else {None})


def _killed_after(kind: str, folder: Path, work: Path, seconds: float) -> int:
    """Let the job complete a checkpoint, then kill it within so many seconds; what it told last."""
    job = subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, str(folder), str(work)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert job.stdout is not None
        first = job.stdout.readline()
        try:
            job.wait(seconds)
        except subprocess.TimeoutExpired:
            job.kill()
        told = [first, *job.stdout.readlines()]
    finally:
        job.kill()
        job.wait()
        if job.stdout is not None:
            job.stdout.close()
    return int([line for line in told if line.endswith("\n")][-1])
