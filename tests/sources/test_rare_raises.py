"""Errors of sources and their readers that no ordinary history meets; no server is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_core.errors import (
    ConfigError,
    CorruptionError,
    OptionError,
    RefusedError,
    ReplayMismatchError,
    SchemaError,
    UnavailableError,
)
from abs_core.model import HandleName
from abs_core.source import Limit, Split
from abs_sources.files import FileOptions, FileSource
from abs_sources.files.cells import WriteOnceMemory
from abs_sources.files.log import SeenLog
from abs_sources.files.readers import log_of
from abs_sources.kafka import bounds
from abs_sources.kafka.offsets import Range, TopicOffsets
from abs_sources.kafka.options import KafkaSourceOptions
from abs_sources.kafka.planning import Facts
from abs_sources.kafka.reader import KafkaReader
from abs_sources.kafka.source import KafkaSource
from abs_spark.datasource import readable as spark_reader
from abs_testing.case import raises
from tests.sources.files.fill import TEXT, Folder
from tests.sources.files.test_files_choice import put, source_on
from tests.sources.files.test_files_log import grown

Patch = pytest.MonkeyPatch


class Brittle(WriteOnceMemory):
    """Cells that go just before they are read."""

    goes: Callable[[str], bool] = staticmethod(lambda name: False)

    def get(self, name: str) -> bytes | None:
        return None if self.goes(name) else super().get(name)


@pytest.mark.parametrize("gone", ["entry-", "fold-"])
def test_a_log_that_is_folded_whenever_it_is_read_is_an_error(gone: str) -> None:
    cells = Brittle()
    grown(cells, 2).fold()
    if gone == "entry-":
        cells.delete([name for name in cells.names() if name.startswith("fold-")])
    cells.goes = lambda name: name.startswith(gone)
    error = raises(UnavailableError, SeenLog(cells, "/data").refresh)
    assert "compacted faster than it can be read" in error.what


@pytest.mark.parametrize(
    ("version", "error"), [(99, RefusedError), ("one", CorruptionError), (None, CorruptionError)]
)
def test_a_log_of_a_newer_release_or_a_damaged_one_is_not_read(
    version: object, error: type[RefusedError]
) -> None:
    cells = WriteOnceMemory()
    grown(cells, 1)
    assert SeenLog(cells, "/data").id
    cells.kept["log.json"] = json.dumps({"id": "a", "root": "/data", "version": version}).encode()
    raises(error, lambda: SeenLog(cells, "/data").id)


@pytest.mark.parametrize("damage", ["no parquet", "no count", "other columns"])
def test_a_fold_that_is_damaged_is_told(damage: str) -> None:
    cells, content = WriteOnceMemory(), pa.BufferOutputStream()
    table = pa.table({"path" if damage == "no count" else "name": ["a"], "stamp": ["s"]})
    meta = {} if damage == "no count" else {"files": "1"}
    pq.write_table(table.replace_schema_metadata(meta), content)
    cells.kept["fold-000000000004"] = (
        b"no" if damage == "no parquet" else content.getvalue().to_pybytes()
    )
    error = raises(CorruptionError, SeenLog(cells, "/data").refresh)
    assert "fold-000000000004" in error.what


def test_an_entry_that_went_after_the_log_was_read_is_told() -> None:
    cells = Brittle()
    grown(cells, 2)
    log = SeenLog(cells, "/data")
    log.refresh()
    log._pins.clear()
    cells.goes = lambda name: name.startswith("entry-")
    error = raises(ReplayMismatchError, lambda: log.files(0, 2))
    assert "has lost entry-" in error.what


def test_text_files_have_one_column_of_text(tmp_path: Path) -> None:
    options = FileOptions.parse({**Folder(tmp_path).given, "fileformat": "text"}, streaming=True)
    wrong = pa.schema([("value", pa.int64())])
    raises(SchemaError, lambda: FileSource(options, wrong))
    FileSource(options, TEXT)


class Crowded(WriteOnceMemory):
    """Cells to which another process adds first, each time."""

    others = 0

    def put_new(self, name: str, content: bytes) -> bool:
        if not name.startswith("entry-"):
            return super().put_new(name, content)
        self.others += 1
        theirs = json.loads(content)
        theirs["files"] = [[f"{self.others}.txt", *more] for _, *more in theirs["files"]]
        super().put_new(name, json.dumps(theirs).encode())
        return False


def test_a_log_to_which_others_always_add_first_is_an_error(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    put(disk, "a", 1)
    source = source_on(disk)
    source._log = SeenLog(Crowded(), "/data")
    start = source.initial()
    error = raises(UnavailableError, lambda: source.latest(start, Limit()))
    assert "keep adding files" in error.what


@pytest.mark.parametrize("place", ["no json", "[]", '{"files": -1, "log": "a"}', '{"log": "a"}'])
def test_offsets_that_are_none_of_a_file_source_are_not_read(place: str, tmp_path: Path) -> None:
    error = raises(ReplayMismatchError, lambda: source_on(Folder(tmp_path)).latest(place, Limit()))
    assert "are not offsets of this source" in error.what


def test_a_split_of_another_log_is_not_read_on(tmp_path: Path) -> None:
    one, other = Folder(tmp_path / "one"), Folder(tmp_path / "other")
    put(one, "a", 1)
    split = _endless(source_on(one))
    raises(ReplayMismatchError, lambda: source_on(other).open(split))


def _endless(source: FileSource) -> Split:
    share = {"at": None, "files": 0, "log": source._log.id, "share": [0, 1]}
    return Split("files", json.dumps(share), None)


def test_a_start_position_that_is_damaged_is_told() -> None:
    raises(CorruptionError, lambda: log_of(Split("a", "no json", "")))


OPTIONS = KafkaSourceOptions.parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
FACTS = Facts({"t": "id"}, {("t", 0): 5}, {("t", 0): 9})


@pytest.mark.parametrize("text", ['{"t": [-1]}', '{"t": 1}', '{"t": ["a"]}', "{}", '{"t": [1, 1]}'])
def test_a_list_of_partitions_is_read_whole_or_refused(text: str) -> None:
    assert bounds.assigned('{"t": [1, 0]}') == (("t", 0), ("t", 1))
    with pytest.raises(ValueError, match=r"partition|topic"):
        bounds.assigned(text)


class Known(KafkaSource):
    """Asks no broker."""

    def _facts(self, place: TopicOffsets | None = None) -> Facts:
        return FACTS


@pytest.fixture
def source() -> Known:
    return Known(OPTIONS)


@pytest.mark.parametrize("offset", [4, 10])
def test_a_start_or_an_end_where_no_record_is_is_refused(offset: int, source: Known) -> None:
    there = bounds.Bound(offsets={("t", 0): offset})
    error = raises(OptionError, Known(replace(OPTIONS, start=there)).initial)
    assert "has offsets from 5 to 9" in error.what
    ending = Known(replace(OPTIONS, end=there))
    error = raises(OptionError, lambda: ending.latest(source.initial(), Limit()))
    assert f"cannot be read up to {offset}" in error.what


def test_a_topic_that_the_source_reads_no_longer_is_not_left_out(source: Known) -> None:
    split = Range("other", "id", 0, 1, None).split
    assert "no longer reads it" in raises(ReplayMismatchError, lambda: source.open(split)).what


@pytest.mark.parametrize("left", [[], [Range("t", "id", 0, 1, 5).split]])
def test_a_bounded_source_is_not_continued_without_an_end(left: list[Split], source: Known) -> None:
    assert "cannot be continued" in raises(ConfigError, lambda: source.resumed(left)).what


def test_a_record_that_was_decided_and_is_undecided_now_is_not_left_out() -> None:
    reader: Any = KafkaReader.__new__(KafkaReader)
    reader._waits = False
    reader._part = Range("t", "id", 0, 1, 5)
    handle = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
    error = raises(ReplayMismatchError, lambda: reader._wait_at(3, handle))
    assert "is undecided now" in error.what


def test_a_limit_in_a_spark_that_has_none_is_refused(monkeypatch: Patch) -> None:
    monkeypatch.setattr(spark_reader, "HAS_LIMITS", False)
    source: Any = SimpleNamespace()
    spark_reader.StreamReader(source, Limit(), TEXT)
    build = lambda: spark_reader.StreamReader(source, Limit(rows=1), TEXT)  # noqa: E731
    assert "cannot limit" in raises(ConfigError, build).what


@pytest.mark.parametrize("call", ["initialOffset", "read", "partitions", "commit", "__reduce__"])
def test_a_source_that_was_refused_says_so_at_each_call(call: str) -> None:
    refused = ConfigError("refused (on purpose)", remedy="none.")
    assert raises(ConfigError, getattr(spark_reader.RefusedReader(refused), call)) is refused
