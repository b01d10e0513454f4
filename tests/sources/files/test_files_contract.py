"""The file source under the contract of every source: each format on disk, and on a real S3 server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from abs_services import S3Service
from abs_testing.check_source import SOURCE_CHECKS, SourceCheck, run_source_check
from abs_testing.checks.sources import (
    a_changed_past_is_an_error,
    a_position_reopened_yields_exactly_the_rest,
    a_range_holds_every_row_once,
    batches_have_the_schema,
    the_same_range_reads_the_same,
)
from tests import sample
from tests.sources.files.fill import Bucket, FilesHarness, Folder, FoldersHarness, credentials

OF_READING = (
    a_range_holds_every_row_once,
    the_same_range_reads_the_same,
    a_position_reopened_yields_exactly_the_rest,
    batches_have_the_schema,
    a_changed_past_is_an_error,
)
CASES = [
    *((check, form) for form in ("parquet", "csv") for check in SOURCE_CHECKS),
    *((check, form) for form in ("arrow", "json", "text") for check in OF_READING),
]
"""Every rule for one format of each kind; for the others those that depend on the format."""


@sample.cases(1, of="form")
@pytest.mark.parametrize(("check", "form"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_local_files(check: SourceCheck, form: str, tmp_path: Path) -> None:
    count = itertools.count()

    @contextmanager
    def opener() -> Iterator[FilesHarness]:
        yield FilesHarness(Folder(tmp_path / str(next(count))), form)

    run_source_check(opener, check)


@sample.cases(1, of="form")
@pytest.mark.parametrize("form", ["parquet", "arrow", "json"])
@pytest.mark.parametrize(
    "check",
    [c for c in OF_READING if c is not a_position_reopened_yields_exactly_the_rest],
    ids=lambda check: check.__name__,
)
def test_files_whose_columns_are_all_in_their_folders(
    check: SourceCheck, form: str, tmp_path: Path
) -> None:
    count = itertools.count()

    @contextmanager
    def opener() -> Iterator[FilesHarness]:
        yield FoldersHarness(Folder(tmp_path / str(next(count))), form)

    run_source_check(opener, check)


@sample.cases(10)
@pytest.mark.services
@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_files_on_s3(
    check: SourceCheck, s3: S3Service, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in credentials(s3).items():
        monkeypatch.setenv(name, value)
    count = itertools.count()
    forms = itertools.cycle(("parquet", "json"))

    @contextmanager
    def opener() -> Iterator[FilesHarness]:
        yield FilesHarness(Bucket(s3, f"{prefix}/{next(count)}"), next(forms))

    run_source_check(opener, check)
