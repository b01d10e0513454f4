"""RocksDB's folders: a dead process's are removed by the next one, a living one's are left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from abs_core.errors import AbsError
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.rocks import RocksBackends, Tuning
from abs_embedded.state.scratch import ScratchFolder

from .state_job import PLACE

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).parent / "state_job.py"
SMALL = Tuning(memtable=1 << 16, cache=1 << 20)


@contextmanager
def job(store: Path, work: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with RocksDB in ``work``, once it has completed a checkpoint."""
    command = [sys.executable, str(PROGRAM), "rocksdb", str(store), str(work)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the job has died"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def folders(work: Path) -> set[str]:
    return {path.name for path in work.iterdir()}


def test_the_folder_of_a_killed_process_is_removed_at_the_next_start(
    tmp_path: Path, new_store: Callable[[], LocalSnapshotStore]
) -> None:
    work = tmp_path / "rocks"
    with job(tmp_path / "store", work) as process:
        (left,) = folders(work)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert folders(work) == {left}
        backend = RocksBackends(work, SMALL)(new_store(), PLACE)
        assert left not in folders(work)
        assert len(folders(work)) == 1
        backend.close()
    assert folders(work) == set()


@pytest.mark.parametrize("stopped", [False, True])
def test_the_folder_of_a_living_process_is_left_alone(
    tmp_path: Path, new_store: Callable[[], LocalSnapshotStore], stopped: bool
) -> None:
    work = tmp_path / "rocks"
    with job(tmp_path / "store", work) as process:
        before = folders(work)
        if stopped:
            process.send_signal(signal.SIGSTOP)
        for _ in range(3):
            RocksBackends(work, SMALL)(new_store(), PLACE).close()
        assert folders(work) == before
        process.send_signal(signal.SIGCONT)
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline(), "it lost its state"


def test_backends_of_one_process_leave_one_another_alone(
    tmp_path: Path, new_store: Callable[[], LocalSnapshotStore]
) -> None:
    new = RocksBackends(tmp_path / "rocks", SMALL)
    first, second = new(new_store(), PLACE), new(new_store(), PLACE)
    first.table("t", "value:bytes").put(b"k", b"v")
    second.close()
    assert first.table("t", "value:bytes").get(b"k") == b"v"
    first.close()
    first.close()
    assert folders(tmp_path / "rocks") == set()


def test_a_folder_that_an_earlier_release_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "op.0-abc" / "db").mkdir(parents=True)
    ScratchFolder(tmp_path, "op.1-").remove()
    assert folders(tmp_path) == {"op.0-abc"}


def test_a_folder_where_none_can_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AbsError, match="The folder"):
        ScratchFolder(tmp_path / "file", "op.0-")
