"""The note of a batch that failed, in the checkpoint: read as it was written, and never guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from abs_core.births.rules import Failed
from abs_core.errors import CorruptionError, UnavailableError
from abs_spark.checkpoint.failures import FailedBatch

WRITTEN = '{"version": 1, "job": "job", "epoch": 7}'


def note_in(folder: Path) -> Path:
    return folder / "abs" / "failed-job.json"


def test_the_first_batch_that_failed_is_kept_for_each_job(tmp_path: Path) -> None:
    failed, other = FailedBatch(f"file://{tmp_path}", "job"), FailedBatch(str(tmp_path), "other")
    assert failed.read() is None
    for batch, first in ((9, 9), (7, 7), (8, 7)):  # a start at 8 was refused, or failed
        failed.note(batch)
        assert FailedBatch(str(tmp_path), "job").read() == Failed(first)
    assert other.read() is None
    assert note_in(tmp_path).read_text() == WRITTEN, "what this release writes, later ones read"
    failed.note(7, partly=True)
    failed.note(7)
    assert failed.read() == Failed(7, partly=True)
    failed.forget()
    failed.forget()
    assert failed.read() is None


def test_a_note_that_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    failed = FailedBatch(str(tmp_path), "job")
    failed.note(7)
    note_in(tmp_path).write_text("{")
    failed.note(8)
    assert note_in(tmp_path).read_text() == "{"


def test_a_note_goes_with_the_job_to_its_new_name(tmp_path: Path) -> None:
    old, new = FailedBatch(str(tmp_path), "job"), FailedBatch(str(tmp_path), "new")
    new.rename("job")
    assert new.read() is None
    old.note(7)
    noted = old.read()
    new.rename("job")
    new.rename("job")
    assert (new.read(), old.read()) == (noted, None)


def test_a_note_that_cannot_be_given_its_new_name_stays_and_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    old, new = FailedBatch(str(tmp_path), "job"), FailedBatch(str(tmp_path), "new")
    old.note(7)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(UnavailableError, match="under the job's old name, job"):
            new.rename("job")
    assert (new.read(), old.read()) == (None, Failed(7))
    new.rename("job")
    assert new.read() == Failed(7)


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "7", '{"epoch": 7}', WRITTEN.replace("7", "-1"), WRITTEN.replace("7", '"7"')],
)
def test_what_is_no_note_is_an_error(tmp_path: Path, damaged: str) -> None:
    failed = FailedBatch(str(tmp_path), "job")
    failed.note(7)
    note_in(tmp_path).write_text(damaged)
    with pytest.raises(CorruptionError, match=r"failed-job\.json cannot be read"):
        failed.read()


def test_a_note_of_a_newer_release_is_refused_by_its_version(tmp_path: Path) -> None:
    failed = FailedBatch(str(tmp_path), "job")
    failed.note(7)
    note_in(tmp_path).write_text(WRITTEN.replace('"version": 1', '"version": 2'))
    with pytest.raises(CorruptionError, match="version 2"):
        failed.read()


def test_where_nothing_can_be_written_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "abs").write_text("a file stands in the way")
    FailedBatch(str(tmp_path), "job").note(7)
    assert "batch 7 failed, and this cannot be recorded" in caplog.text


def test_a_note_that_cannot_be_read_now_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "0123-4567"}')
    failed = FailedBatch(str(tmp_path), "job")
    failed.note(7)
    note_in(tmp_path).unlink()
    note_in(tmp_path).symlink_to("/proc/self/mem")  # a file whose first bytes are an error to read
    with pytest.raises(UnavailableError, match="cannot be read now"):
        failed.read()
