"""Errors of S3's committers and register, and of tables, that no ordinary history meets.

No server is asked.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from abs_clients.s3.objects import Listed
from abs_core.errors import (
    ContentionError,
    CorruptionError,
    FencedError,
    NotPreparedError,
    ProtocolError,
    RefusedError,
    RegisterLostError,
    UnavailableError,
)
from abs_core.lookback import EPOCHS
from abs_core.model import TOGETHER, Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.patience import Patience
from abs_core.wal import Entry
from abs_sinks.lake.committer import (
    FILES,
    TRIES,
    LakeCommitter,
    _seal_of,
    _together,
    mark_of,
)
from abs_sinks.s3 import S3Options, S3Register, manifests, segments, wal
from abs_sinks.s3.committed import _Jobs
from abs_sinks.s3.idempotent import IdempotentCommitter, IdempotentWriter
from abs_sinks.s3.layout import FileName
from abs_sinks.s3.register import RegisterObject
from abs_sinks.s3.upload_commit import PendingUploads
from abs_sinks.s3.uploads import Pending, Upload, uploads_from_text, uploads_to_text
from abs_testing.case import raises

OPTIONS = S3Options.parse({"path": "s3://bucket/folder"})
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
STATE = JobState("0123456789abcdef", "job", "here", "lineage", 1, "run")
UPLOAD = Upload("folder/file", "id", 1, "0" * 16, ("etag",))

Patch = pytest.MonkeyPatch


def committable(*uploads: Upload, handle: HandleName = HANDLE, files: str = "") -> Committable:
    told = {"uploads": uploads_to_text(uploads), FILES: files}
    return Committable(handle, 1, "d", tuple(sorted(told.items())))


def test_a_task_whose_upload_was_swept_is_fenced(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PendingUploads, "complete", lambda *_: Outcome.ABORTED)
    writer: Any = IdempotentWriter.__new__(IdempotentWriter)
    writer._options, writer._handle, writer._uploads = OPTIONS, HANDLE, (UPLOAD,)
    writer._patience = Patience(0.0)
    assert "was ended while its task was at work" in raises(FencedError, writer._sealed).what


@pytest.mark.parametrize("letters", [True, False])
@pytest.mark.parametrize("fails", ["read", "finish"])
def test_the_files_of_a_compose_that_fails_are_discarded(
    fails: str, letters: bool, monkeypatch: Patch
) -> None:
    discarded = list[object]()

    class Files:
        rows = 0

        def finish(self) -> list[Upload]:
            if fails == "finish":
                raise UnavailableError("away (on purpose)")
            return []

        def discard(self) -> None:
            discarded.append(self)

    def fill(*_: object) -> None:
        if fails == "read":
            raise UnavailableError("away (on purpose)")

    monkeypatch.setattr(wal, "TaskFiles", lambda *_: Files())
    monkeypatch.setattr(wal, "letters_files", lambda *_: Files())
    monkeypatch.setattr(wal, "_fill", fill)
    options = S3Options.parse(
        {"path": "s3://bucket/folder"} | ({"deadletter": "s3://bucket/dead"} if letters else {})
    )
    raises(UnavailableError, lambda: wal.compose(options, pa.schema([]), [committable()]))
    assert len({*discarded}) == len(discarded) == 1 + letters


def test_a_segment_that_is_not_sealed_has_no_size_and_a_sealed_one_counts(
    monkeypatch: Patch,
) -> None:
    other = replace(HANDLE, partition=1)
    sealed = Listed("key", 7, "etag", datetime(2026, 1, 1, tzinfo=UTC))
    store: Any = segments.S3Segments(OPTIONS)
    opened = [(each, Pending("key", "id", 2.0)) for each in (HANDLE, other)]
    monkeypatch.setattr(store, "_open", lambda _: opened)
    monkeypatch.setattr(
        segments, "SEGMENTS", SimpleNamespace(of_job=lambda *_: [(other, sealed, 3.0)])
    )
    assert store.list("job") == [Entry(HANDLE, 0, 2.0, False), Entry(other, 7, 3.0, True)]


def test_a_segment_that_was_swept_while_it_was_sealed_is_an_error(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PendingUploads, "complete", lambda *_: Outcome.UNKNOWN)
    file: Any = segments.S3SegmentFile(OPTIONS, HANDLE, "key")
    file._upload = SimpleNamespace(finish=lambda: UPLOAD)
    assert "is unknown after it was completed" in raises(UnavailableError, file.seal).what


def test_uploads_with_fields_that_nobody_knows_are_not_read_in_part() -> None:
    text = uploads_to_text([UPLOAD]).replace('""]', '"", "more"]')
    with pytest.raises(CorruptionError, match="an upload has 1 fields too many"):
        uploads_from_text(text, "it", "restore it")


@pytest.fixture
def committer() -> Any:
    return IdempotentCommitter(OPTIONS)


def test_objects_that_are_gone_before_the_decision_are_not_decided(
    committer: Any, monkeypatch: Patch
) -> None:
    answer = {HANDLE: Inspection(Outcome.UNKNOWN)}
    monkeypatch.setattr(IdempotentCommitter, "inspect", lambda *_: answer)
    error = raises(NotPreparedError, lambda: committer._require_all([committable(UPLOAD)]))
    assert "are unknown before its epoch is decided" in error.what


@pytest.mark.parametrize(
    ("cell", "size"),
    [
        (None, UPLOAD.size),
        (RegisterObject(STATE), UPLOAD.size),
        (RegisterObject(STATE, ("other",)), UPLOAD.size),
        (RegisterObject(STATE, ("other", "mine")), 0),
    ],
)
def test_objects_in_doubt_have_their_size_unless_the_register_lists_them(
    cell: RegisterObject | None, size: int, committer: Any, monkeypatch: Patch
) -> None:
    listed = {"mine": {UPLOAD.key}, "other": {"another"}}
    found = None if cell is None else (cell, "version")
    monkeypatch.setattr(S3Register, "cell", lambda *_: found)
    monkeypatch.setattr(
        manifests.Manifests,
        "names_of",
        lambda _, names, __: {key for name in names for key in listed[name]},
    )
    monkeypatch.setattr(committer._markers, "_named", lambda _: (UPLOAD,))
    assert committer._measured(InDoubt(HANDLE, 1.0, "it")).size == size


def test_nothing_is_aborted_where_the_register_is_missing(
    committer: Any, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(S3Register, "present", lambda *_: None)
    error = raises(RegisterLostError, lambda: committer._kept(HANDLE))
    assert "is missing" in error.what


def test_a_manifest_of_an_invalid_name_is_not_left_out() -> None:
    error = raises(CorruptionError, lambda: manifests._parsed("../elsewhere"))
    assert "lists an invalid manifest" in error.what


def test_files_of_a_register_that_is_nowhere_are_not_left_out(monkeypatch: Patch) -> None:
    monkeypatch.setattr(_Jobs, "_read", lambda *_: None)
    name = FileName(HANDLE, 0)
    listed = Listed("folder/file", 1, "etag", datetime(2026, 1, 1, tzinfo=UTC))
    error = raises(RegisterLostError, lambda: _Jobs([OPTIONS]).require(name, listed, OPTIONS.path))
    assert "a reader would miss the job's rows" in error.what


@pytest.mark.parametrize("again", [None, (RegisterObject(STATE), "newer")])
def test_a_register_that_changes_while_it_is_retired_stays(
    again: tuple[RegisterObject, str] | None, monkeypatch: Patch
) -> None:
    answers = [(RegisterObject(STATE), "old"), again]
    monkeypatch.setattr(S3Register, "cell", lambda *_: answers.pop(0))
    error = raises(ContentionError, lambda: S3Register(OPTIONS).retire("job"))
    assert "changed in the meantime" in error.what


@pytest.mark.parametrize("call", ["retire", "check_movable"])
def test_a_register_that_names_what_readers_use_is_not_retired_or_moved(
    call: str, monkeypatch: Patch
) -> None:
    cell = RegisterObject(STATE, ("manifest",)), "version"
    monkeypatch.setattr(S3Register, "cell", lambda *_: cell)
    error = raises(ProtocolError, lambda: getattr(S3Register(OPTIONS), call)("job"))
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
    lake: Any = LakeCommitter(table, "folder/", nothing)
    monkeypatch.setattr(LakeCommitter, "_looked", lambda *_: table)
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
