"""A process's file is taken for a dead one's only when nobody has it locked."""

from __future__ import annotations

import fcntl
from pathlib import Path

from abs_core.durable import of_a_dead_process


def test_a_file_that_is_locked_is_a_living_process(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    path.write_bytes(b"mine")
    with path.open("rb+") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        with of_a_dead_process(path) as file:
            assert file is None
    with of_a_dead_process(path) as file:
        assert file is not None
        assert file.read() == b"mine"


def test_a_dead_process_s_file_is_locked_while_it_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    path.touch()
    with of_a_dead_process(path) as first:
        assert first is not None
        with of_a_dead_process(path) as second:
            assert second is None
    with of_a_dead_process(path) as after:
        assert after is not None


def test_what_cannot_be_opened_is_no_dead_process(tmp_path: Path) -> None:
    with of_a_dead_process(tmp_path / "gone") as file:
        assert file is None
    with of_a_dead_process(tmp_path) as folder:
        assert folder is None
