"""Errors of S3's committers and register, and of tables, that no ordinary history meets.

No server is asked.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from abs_clients.s3.objects import Listed
from abs_core.errors import (
    ContentionError,
    CorruptionError,
    ProtocolError,
    RefusedError,
    RegisterLostError,
    UnavailableError,
)
from abs_core.lookback import EPOCHS
from abs_core.model import TOGETHER, Committable, HandleName, JobState
from abs_sinks.lake.committer import (
    FILES,
    TRIES,
    LakeCommitter,
    _seal_of,
    _together,
    mark_of,
)
from abs_sinks.s3 import S3Options, S3Register, manifests
from abs_sinks.s3.committed import _Jobs
from abs_sinks.s3.layout import FileName
from abs_sinks.s3.register import RegisterObject
from abs_sinks.s3.uploads import Upload, uploads_from_text, uploads_to_text
from abs_testing.case import raises

OPTIONS = S3Options.parse({"path": "s3://bucket/folder"})
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
STATE = JobState("0123456789abcdef", "job", "here", "lineage", 1, "run")
UPLOAD = Upload("folder/file", "id", 1, "0" * 16, ("etag",))

Patch = pytest.MonkeyPatch


def committable(*uploads: Upload, handle: HandleName = HANDLE, files: str = "") -> Committable:
    told = {"uploads": uploads_to_text(uploads), FILES: files}
    return Committable(handle, 1, "d", tuple(sorted(told.items())))


def test_uploads_with_fields_that_nobody_knows_are_not_read_in_part() -> None:
    text = uploads_to_text([UPLOAD]).replace('""]', '"", "more"]')
    with pytest.raises(CorruptionError, match="an upload has 1 fields too many"):
        uploads_from_text(text, "it", "restore it")


def test_a_manifest_of_an_invalid_name_is_not_left_out() -> None:
    error = raises(CorruptionError, lambda: manifests._parsed("../elsewhere"))
    assert "lists an invalid manifest" in error.what


def test_files_of_a_register_that_is_nowhere_are_not_left_out() -> None:
    class Nowhere(_Jobs):
        def _read(self, *_: object) -> None:
            """No register is found."""

    name = FileName(HANDLE, 0)
    listed = Listed("folder/file", 1, "etag", datetime(2026, 1, 1, tzinfo=UTC))
    error = raises(
        RegisterLostError, lambda: Nowhere([OPTIONS]).require(name, listed, OPTIONS.path)
    )
    assert "a reader would miss the job's rows" in error.what


class Answering(S3Register):
    """A register that finds these cells, one after another."""

    def __init__(self, answers: list[tuple[RegisterObject, str] | None]) -> None:
        super().__init__(OPTIONS)
        self._answers = answers

    def cell(self, job: str) -> tuple[RegisterObject, str] | None:
        return self._answers.pop(0)


@pytest.mark.parametrize("again", [None, (RegisterObject(STATE), "newer")])
def test_a_register_that_changes_while_it_is_retired_stays(
    again: tuple[RegisterObject, str] | None,
) -> None:
    register = Answering([(RegisterObject(STATE), "old"), again])
    error = raises(ContentionError, lambda: register.retire("job"))
    assert "changed in the meantime" in error.what


@pytest.mark.parametrize("call", ["retire", "check_movable"])
def test_a_register_that_names_what_readers_use_is_not_retired_or_moved(
    call: str,
) -> None:
    register = Answering([(RegisterObject(STATE, ("manifest",)), "version")])
    error = raises(ProtocolError, lambda: getattr(register, call)("job"))
    assert "names the files that readers use" in error.what


class Table:
    """A table that others always change first."""

    id = "table"
    added = 0

    def load(self) -> Any:
        return self

    def add(self, *_: object) -> bool:
        self.added += 1
        return False

    def is_in(self, *_: object) -> bool:
        return False


def test_an_epoch_that_others_always_overtake_is_an_error(monkeypatch: Patch) -> None:
    table: Any = Table()
    nothing: Any = SimpleNamespace()

    class Looking(LakeCommitter):
        def _looked(self, share: object) -> Any:
            return table

    lake: Any = Looking(table, "folder/", nothing)
    monkeypatch.setattr("abs_sinks.lake.committer.wait_random_exponential", lambda **_: 0)
    error = raises(ContentionError, lambda: lake._added([committable()], table, []))
    assert f"changed by others {TRIES} times" in error.what
    assert table.added == TRIES


def test_files_of_a_handle_that_are_not_all_described_are_not_added() -> None:
    nothing: Any = SimpleNamespace()
    lake: Any = LakeCommitter(nothing, "folder/", nothing)
    with pytest.raises(CorruptionError, match="there are 1 files, and 0 are described"):
        lake._files(committable(UPLOAD, files="[]"))


@pytest.mark.parametrize(
    "handle",
    [
        HandleName("0123456789abcdef", "job", 1, EPOCHS, 0, "abc"),
        HandleName("0123456789abcdef", "job", EPOCHS // 2, 0, 0, "abc"),
    ],
)
def test_an_epoch_that_a_tables_version_cannot_hold_is_refused(handle: HandleName) -> None:
    error = raises(RefusedError, lambda: mark_of([committable(handle=handle)]))
    assert "does not fit the version" in error.what


def test_a_part_of_the_handles_that_go_together_is_not_committed() -> None:
    pair = [committable(), committable(handle=replace(HANDLE, partition=1))]
    whole = replace(pair[0], extra=((TOGETHER, _seal_of(pair)), *pair[0].extra))
    raises(ProtocolError, lambda: _together([whole]))


def test_a_manifests_name_that_is_taken_is_told_and_tried_again() -> None:
    """Names are random: only a request that was doubled, and whose reply was lost, finds its own."""
    found = manifests.Manifests(OPTIONS, "job")
    found._objects = SimpleNamespace(put_if=lambda *_: None)  # type: ignore[assignment]
    error = raises(UnavailableError, lambda: found._put(0, 0, 0, 1, []))
    assert "of a manifest is taken" in error.what
