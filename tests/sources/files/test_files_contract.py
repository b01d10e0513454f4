"""The file source under the contract of every source: each format on disk, and on a real S3 server."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
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
from abs_testing.harness import SourceOpener
from tests import sample
from tests.sources.files.fill import Bucket, FilesHarness, Folder, FoldersHarness, credentials

OF_READING = (
    a_range_holds_every_row_once,
    the_same_range_reads_the_same,
    a_position_reopened_yields_exactly_the_rest,
    batches_have_the_schema,
    a_changed_past_is_an_error,
)
IN_FOLDERS = [
    each for each in OF_READING if each is not a_position_reopened_yields_exactly_the_rest
]
"""Of files with a row each: they have no position inside."""
CASES = [
    *((check, FilesHarness, form) for form in ("parquet", "csv") for check in SOURCE_CHECKS),
    *((check, FilesHarness, form) for form in ("arrow", "json", "text") for check in OF_READING),
    *(
        (check, FoldersHarness, form)
        for form in ("parquet", "arrow", "json")
        for check in IN_FOLDERS
    ),
]
"""Every rule for one format of each kind; for the others those that depend on the format."""


def each_new(opened: Callable[[int], FilesHarness]) -> SourceOpener:
    """Opens a harness for each number, from 0 on."""
    count = itertools.count()
    return lambda: nullcontext(opened(next(count)))


@sample.cases(1, of="form")
@pytest.mark.parametrize(
    ("check", "harness", "form"), CASES, ids=lambda case: getattr(case, "__name__", case)
)
def test_local_files(
    check: SourceCheck, harness: type[FilesHarness], form: str, tmp_path: Path
) -> None:
    run_source_check(each_new(lambda n: harness(Folder(tmp_path / str(n)), form)), check)


@sample.cases(10)
@pytest.mark.services
@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_files_on_s3(
    check: SourceCheck, s3: S3Service, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in credentials(s3).items():
        monkeypatch.setenv(name, value)
    forms = itertools.cycle(("parquet", "json"))
    run_source_check(
        each_new(lambda n: FilesHarness(Bucket(s3, f"{prefix}/{n}"), next(forms))), check
    )
