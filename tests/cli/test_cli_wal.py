"""``abs wal``: segments are listed and verified, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abs_core.model import HandleName
from abs_core.wal import FolderSegments, SegmentWriter
from abs_testing.harness import SCHEMA, batch_of
from tests.kit.command import abs_, abs_prints

FIRST = HandleName("0" * 16, "job", 1, 7, 3, "ab")
SECOND = HandleName("0" * 16, "other", 1, 8, 0, "cd")


@pytest.fixture
def wal(tmp_path: Path) -> str:
    """URL of a log of two segments and one that is not sealed."""
    store = FolderSegments(tmp_path)
    for handle in (FIRST, SECOND):
        writer = SegmentWriter(store, handle, SCHEMA)
        writer.write(batch_of([(1, "one"), (2, "two")]))
        writer.finish()
    (tmp_path / f"{FIRST}c.arrows.open").touch()
    return store.url


def test_segments_are_listed(wal: str) -> None:
    listed = json.loads(abs_prints(0, "wal", "ls", wal, "--json"))
    found = [(entry["handle"], entry["sealed"]) for entry in listed]
    assert found == [(str(FIRST), True), (f"{FIRST}c", False), (str(SECOND), True)]
    assert [
        e["job"] for e in json.loads(abs_prints(0, "wal", "ls", wal, "--job", "other", "--json"))
    ] == ["other"]
    assert "not sealed" in abs_prints(0, "wal", "ls", wal)


def test_a_folder_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for command in (("ls",), ("ls", "--json"), ("verify",)):
        done = abs_("wal", command[0], str(missing), *command[1:])
        assert done.exit_code != 0, done.output
        assert "There is no folder" in str(done.exception or done.output)
    assert not missing.exists()


def test_whole_segments_are_said_to_be_whole(wal: str) -> None:
    assert "2 segments with 4 rows are intact, 0 damaged" in abs_prints(0, "wal", "verify", wal)


def test_a_damaged_segment_is_named_and_fails(wal: str, tmp_path: Path) -> None:
    path = tmp_path / f"{SECOND}.arrows"
    path.write_bytes(path.read_bytes()[:-1])
    checked = json.loads(abs_prints(1, "wal", "verify", wal, "--json"))
    assert [bool(check["damage"]) for check in checked] == [False, True]
    assert "1 damaged" in abs_prints(1, "wal", "verify", wal)
    assert "1 segments" in abs_prints(0, "wal", "verify", wal, "--handle", str(FIRST))
