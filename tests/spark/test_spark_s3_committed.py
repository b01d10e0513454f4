"""A reader of a folder in S3 sees every committed row, or is refused: it never misses one in silence.

Without Spark: the source that ``spark.read.format("abs-s3")`` reads by.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from abs_clients.s3.objects import Objects
from abs_core.errors import AbsError, CorruptionError, OptionError, RegisterLostError
from abs_core.source import Limit
from abs_services import S3Service
from abs_sinks.s3 import S3Options, S3Register, S3Sink, committed_files
from abs_sinks.s3.sink import admin_committer
from abs_sinks.s3.testing import FolderHarness, open_folder
from abs_spark.datasource import s3
from abs_spark.datasource.s3 import S3DataSource
from abs_testing import SCHEMA, Row
from abs_testing.case import Case, rows
from tests.planted import planted

pytestmark = pytest.mark.services

ONE, TWO, LATER = rows(0, 3), rows(10, 3), rows(30, 2)


class Folder:
    """A folder that jobs of ``protocol=idempotent`` write to, and how it is read.

    Args:
        given: options that name it.
    """

    def __init__(self, harness: FolderHarness, given: dict[str, str]) -> None:
        self.harness = harness
        self.given = {**given, "path": harness.path}
        self.objects = Objects(harness.options.bucket)

    def commits(self, job: str, *parts: list[Row], path: str = "", **more: str) -> None:
        """Each part is an epoch of one task."""
        given = {**self.given, "path": self.given["path"] + path, "protocol": "idempotent", **more}
        self.harness.new_sink = partial(S3Sink, S3Options.parse(given), SCHEMA)
        run = Case(self.harness).run(job)
        for epoch, part in enumerate(parts):
            run.epoch(epoch, part)

    def read(self, **more: str) -> list[Row]:
        source = S3DataSource.open_batch({**self.given, **more}, SCHEMA)
        start = source.initial()
        end = source.latest(start, Limit())
        found: list[Row] = []
        for split in source.splits(start, end):
            reader = source.open(split)
            while not reader.finished:
                batch = reader.read(5.0)
                if batch is not None:
                    found += zip(batch["id"].to_pylist(), batch["value"].to_pylist(), strict=True)
            reader.close()
        return sorted(found)

    def all(self) -> list[str]:
        return [listed.key for listed in self.objects.list(self.harness.options.path.folder)]

    def register(self, job: str) -> str:
        return S3Register(self.harness.options).key(job)

    def state(self, name: str) -> str:
        """A place for registers beside the folder, which is cleaned with it."""
        return f"{self.given['path']}/_{name}"


@pytest.fixture
def folder(store: S3Service, prefix: str) -> Iterator[Folder]:
    given = {"endpoint": store.endpoint, "region": store.region, "timeout": "20"}
    with open_folder(f"s3://{store.bucket}/{prefix}", given) as harness:
        yield Folder(harness, given)


def test_whatever_object_is_lost_a_reader_sees_every_row_or_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abs_sinks.s3.committed.LOOK_SECONDS", 0.1)
    folder.commits("one", ONE, TWO)
    folder.commits("two", rows(20, 3))
    every = sorted([*ONE, *TWO, *rows(20, 3)])
    assert folder.read() == every
    refused = set()
    for key in folder.all():
        body = folder.objects.get(key)
        assert body is not None
        folder.objects.delete([key])
        try:
            assert folder.read() == every, f"rows are missing in silence without {key}"
        except AbsError as error:
            refused.add(type(error).__name__)
        folder.objects.put(key, body.data)
    assert {"CorruptionError", "RegisterLostError"} <= refused
    assert folder.read() == every


def test_a_committed_file_that_is_gone_is_named_and_put_back_or_its_rows_are_missing(
    folder: Folder,
) -> None:
    """Both ways that the error names, to the letter; the job goes on beside them."""
    folder.commits("one", ONE, TWO)
    (gone, left) = (file.key for file in committed_files(folder.harness.options))
    copy = folder.objects.get(gone)
    assert copy is not None
    folder.objects.delete([gone])
    with pytest.raises(CorruptionError) as refused:
        folder.read()
    assert gone in refused.value.what
    assert (refused.value.job, refused.value.epoch) == ("one", 0)
    assert refused.value.remedy.startswith("restore the object. If it is gone for good")
    assert "those files of abs_sinks.s3.committed_files() that are there" in refused.value.remedy
    listed = [file.key for file in committed_files(folder.harness.options)]
    there = [key for key in listed if folder.objects.head(key) is not None]
    assert there == [left]
    assert sorted(folder.harness._rows(there)) == TWO, "nothing else is missing"
    folder.objects.put(gone, copy.data)
    assert folder.read() == sorted([*ONE, *TWO])
    Case(folder.harness).run("one").epoch(2, LATER)
    assert folder.read() == sorted([*ONE, *TWO, *LATER])


def test_a_committed_file_that_a_listing_leaves_out_is_read_all_the_same(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.commits("one", ONE, TWO)
    monkeypatch.setattr("abs_sources.files.s3.S3Store.find", lambda store: [])
    assert folder.read() == sorted([*ONE, *TWO])


@pytest.mark.parametrize("protocol", ["2pc", "idempotent"])
def test_a_job_whose_register_lies_elsewhere_is_not_passed_over(
    folder: Folder, protocol: str
) -> None:
    folder.commits("one", ONE)
    folder.commits("two", TWO, statepath=folder.state("two"))
    folder.commits("three", rows(20, 3), statepath=folder.state("three"))
    for more in ({}, {"statepath": folder.state("two")}):
        with pytest.raises(RegisterLostError, match=r"nor in|is not in") as refused:
            folder.read(protocol=protocol, **more)
        assert "statepath" in refused.value.remedy
        assert refused.value.job in ("two", "three")
    several = f"{folder.state('two')},{folder.state('three')}"
    every = sorted([*ONE, *TWO, *rows(20, 3)])
    assert folder.read(protocol=protocol, statepaths=several) == every
    rest = {"statepath": folder.state("two"), "statepaths": folder.state("three")}
    assert folder.read(protocol=protocol, **rest) == every


def test_a_job_without_its_register_is_not_passed_over(folder: Folder) -> None:
    folder.commits("one", ONE)
    folder.commits("two", TWO)
    folder.objects.delete([folder.register("two")])
    with pytest.raises(RegisterLostError, match="would miss the job's rows") as refused:
        folder.read()
    assert refused.value.job == "two"
    assert "restore" in refused.value.remedy


def test_a_job_that_begins_while_its_folder_is_read_is_no_lost_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.commits("one", ONE)
    # As a look at the registers just before the job began.
    monkeypatch.setattr("abs_sinks.s3.register.S3Register.names", lambda register: iter(()))
    assert folder.read() == ONE


def test_what_a_sink_of_a_folder_below_has_written_is_not_this_folders(folder: Folder) -> None:
    folder.commits("one", ONE)
    folder.commits("two", TWO, path="/below")
    assert folder.read() == ONE
    assert folder.read(path=f"{folder.given['path']}/below") == TWO


def test_files_of_a_job_that_was_retired_before_its_first_epoch_are_told_of(folder: Folder) -> None:
    """Nobody can tell them from committed ones any more; a person's orphan is swept by name."""
    folder.commits("one", ONE)
    run = Case(folder.harness).run("two")
    wrote = run.attempt(0).write(*TWO).pre_commit()
    assert folder.read() == ONE
    S3Register(folder.harness.options).retire("two")
    with pytest.raises(RegisterLostError, match="would miss") as refused:
        folder.read()
    assert wrote.committable is not None
    assert refused.value.handle == str(wrote.committable.handle)
    admin_committer(folder.harness.options).abort([wrote.committable.handle])
    assert folder.read() == ONE


def test_statepaths_are_those_that_a_job_could_have(folder: Folder) -> None:
    with pytest.raises(OptionError, match="different buckets"):
        folder.read(statepaths="s3://other/x")
    with pytest.raises(OptionError, match="statepaths is not one of ours"):
        S3Options.parse({**folder.given, "statepaths": folder.state("one")})


@pytest.mark.parametrize("name", ["[eu] orders", "a{b,c}", "x*y"])
@pytest.mark.parametrize("protocol", ["2pc", "wal", "idempotent"])
def test_a_path_with_the_signs_of_a_glob_is_read_as_it_was_written(
    folder: Folder, protocol: str, name: str
) -> None:
    folder.commits("one", ONE, TWO, path=f"/{name}", protocol=protocol)
    assert folder.read(path=f"{folder.given['path']}/{name}") == [*ONE, *TWO]


def test_a_path_that_is_read_as_a_glob_is_found(folder: Folder) -> None:
    folder.commits("one", ONE, TWO, path="/[eu] orders")
    with planted((s3, "literal", lambda path: path), by=AbsError):
        folder.read(path=f"{folder.given['path']}/[eu] orders")
