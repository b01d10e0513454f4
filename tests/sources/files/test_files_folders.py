"""Values in folder names, and files of ``abs-s3``, are what Spark makes of them, or are refused.

Spark's answers are kept in ``spark_folders.json``; ``tests/spark/test_spark_folders.py`` asks it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from abs_clients.arrow import cast_plain, plain_type
from abs_core.errors import DataError, RowError, SchemaError
from abs_core.source import Limit
from abs_sinks.s3 import formats, partitions
from abs_sinks.s3.formats import check_schema
from abs_sinks.s3.partitions import NULL_FOLDER, Partitioning
from abs_sinks.text import plain_text
from abs_sources.files import FileOptions, FileSource
from abs_sources.files.formats import FolderColumns
from tests.planted import planted
from tests.sources.files.spark_folders import (
    ANSWERS,
    BY_HAND,
    CONTENT,
    FOLDERS,
    FORMS,
    SPARKS_ALONE,
    UTC,
    ZONES,
    answers,
    plain,
    sinks_file,
    sinks_folders,
)

KEPT: dict[str, list[dict[str, Any]]] = json.loads(ANSWERS.read_text())
ARROW = {kind: arrow for kind, (arrow, _) in {**FOLDERS, **SPARKS_ALONE}.items()}
AS_NULL = {"", NULL_FOLDER}
"""Texts that Spark's folders cannot hold; those of ``abs-s3`` hold the second one, by an escape."""


def read(kind: str, folder: str, zone: str | None) -> Any:
    """What ``abs-files`` makes of a folder's name; ``...`` for a refusal that names it."""
    schema = pa.schema([("id", pa.int64()), ("v", ARROW[kind])])
    try:
        columns = FolderColumns(schema, f"{folder}/a", "the file", zone)
    except RowError as refused:
        return ... if "v=" in refused.what and refused.remedy else refused
    batch = columns.add(pa.record_batch({"id": pa.array([1], pa.int64())}))
    return answers(batch["v"])[0]


BETTER: dict[tuple[str, str], Any] = {
    ("decimal(10,2)", "v=1"): "1.00",  # Spark takes digits without a scale for hundredths: 0.01
    ("decimal(10,2)", "v=1.5"): "1.50",
    ("decimal(10,2)", "v=1e2"): "100.00",
    ("double", "v=nan"): "nan",  # as in CSV; Spark refuses them
    ("double", "v=inf"): "inf",
    ("string", "v=%E2%82%AC"): "€",  # bytes of UTF-8, as pyarrow writes; Spark takes three letters
}
"""Differences that are meant: docs/reference/files-source.md says so. Spark writes no such names."""

ASKED = list(dict.fromkeys((one["zone"], one["kind"]) for one in KEPT["sparks"]))


@pytest.mark.parametrize("part", ["sparks", "by hand"])
@pytest.mark.parametrize(("zone", "kind"), ASKED)
def test_a_folder_is_read_as_spark_reads_it_in_that_zone_or_refused(
    zone: str, kind: str, part: str
) -> None:
    found = 0
    for one in KEPT[part]:
        if (one["zone"], one["kind"]) != (zone, kind):
            continue
        got = read(kind, one["folder"], zone)
        if (kind, one["folder"]) in BETTER and part == "by hand":
            assert got == BETTER[kind, one["folder"]]
            continue
        assert got is ... or ("reads" in one and got == one["reads"]), one
        found += got is not ...
        if part == "sparks" and one["wrote"] in AS_NULL:
            assert got is None
        elif part == "sparks" and got is not ...:
            assert got == one["wrote"], f"not what Spark's user wrote: {one}"
    assert found or part == "by hand"


@pytest.mark.parametrize("zone", ZONES)
def test_of_what_spark_writes_only_a_time_that_the_zone_has_twice_is_refused(zone: str) -> None:
    refused = {
        one["folder"]
        for one in KEPT["sparks"]
        if one["zone"] == zone and read(one["kind"], one["folder"], zone) is ...
    }
    twice = {
        "America/New_York": {"v=1883-11-18 12%3A00%3A00", "v=2026-11-01 01%3A30%3A00"},
        "Europe/Berlin": {"v=2026-10-25 02%3A30%3A00"},
    }
    assert refused == twice.get(zone, set())


def test_a_moment_without_an_offset_is_refused_where_no_zone_is_given() -> None:
    for one in KEPT["sparks"]:
        if one["kind"] == "timestamp" and one["reads"] is not None:
            assert read("timestamp", one["folder"], None) is ...
    with pytest.raises(RowError, match="the option timeZone"):
        FolderColumns(pa.schema([("v", UTC)]), "v=2026-01-02 03%3A04%3A05/a", "f", None)


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_reader_in_every_zone_reads_the_folders_of_abs_s3_as_they_were_written(
    kind: str,
) -> None:
    arrow, values = FOLDERS[kind]
    folders = sinks_folders(kind)
    wrote = [None if value == "" else plain(value, arrow) for value in values]
    for zone in ZONES:
        sparks = {
            one["folder"]: one["reads"]
            for one in KEPT["sinks"]
            if (one["zone"], one["kind"]) == (zone, kind)
        }
        assert [sparks[folder] for folder in folders] == wrote, f"Spark in {zone}"
        for ours in (zone, None, "UTC"):  # abs-s3's own reader takes UTC
            assert [read(kind, folder, ours) for folder in folders] == wrote, f"abs-files, {ours}"


def test_folders_of_older_releases_are_read_as_utc_by_abs_s3() -> None:
    assert read("timestamp", "v=2026-01-02 03%3A04%3A05", "UTC") == 1_767_323_045_000_000


def test_a_moment_that_has_no_text_is_refused_by_name() -> None:
    for kind, value in ((UTC, 2**62), (pa.timestamp("us"), -(2**62)), (pa.date32(), 2**30)):
        table = pa.table({"id": [1], "at": pa.array([value], kind)})
        with pytest.raises(RowError, match=r'"at".*years 1 to 9999'):
            list(Partitioning(table.schema, ["at"]).split(table.to_batches()[0]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CONTENT)
def test_spark_reads_a_file_of_abs_s3_as_it_was_written_or_the_type_is_refused_before(
    name: str, form: str
) -> None:
    schema, options, content = sinks_file(form, name)
    asked = [one for one in KEPT["content"] if (one["form"], one["name"]) == (form, name)]
    if not asked:
        with pytest.raises(SchemaError, match="The column v cannot be written as"):
            check_schema(schema, options)
        return
    check_schema(schema, options)
    _, arrow, values = CONTENT[name]
    wrote = [plain(value, arrow) for value in values]
    if (form, name) == ("csv", "empty string"):  # the page says so
        wrote = [value or None for value in wrote]
    for one in asked:
        assert content().decode() == one["content"], "ask Spark again"
        assert one.get("reads") == wrote, one


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in CONTENT if name != "void"])
def test_abs_files_reads_what_abs_s3_wrote_and_line_breaks_in_csv_are_refused(
    name: str, form: str, tmp_path: Path
) -> None:
    schema, options, content = sinks_file(form, name)
    try:
        check_schema(schema, options)
    except SchemaError:
        return  # the test above says for which
    (tmp_path / f"a.{form}").write_bytes(content())
    given = {"path": str(tmp_path), "fileformat": form, "header": "true"}
    if form == "json":
        del given["header"]
    source = FileSource(FileOptions.parse(given, streaming=False), schema)
    start = source.initial()
    [split] = source.splits(start, source.latest(start, Limit()))
    reader = source.open(split)
    if (form, name) == ("csv", "line break"):
        with pytest.raises(RowError, match="line break"):
            reader.read(1.0)
        return
    batch = reader.read(1.0)
    _, arrow, values = CONTENT[name]
    assert batch is not None
    assert answers(batch["v"]) == [plain(value, arrow) for value in values]
    reader.close()


def test_a_name_with_a_line_break_is_refused_in_the_header_of_csv() -> None:
    _, options, _ = sinks_file("csv", "bigint")
    for name in ("a\nb", "a\rb"):
        with pytest.raises(SchemaError, match="line break"):
            check_schema(pa.schema([(name, pa.int64())]), options)


def test_the_answers_are_of_every_value_zone_and_type() -> None:
    values = sum(len(values) for _, values in FOLDERS.values())
    alone = sum(len(values) for _, values in SPARKS_ALONE.values())
    by_hand = sum(map(len, BY_HAND.values())) + 2 * len(BY_HAND["timestamp"])
    assert len(KEPT["sparks"]) == len(ZONES) * (values + alone)
    assert len(KEPT["sinks"]) == len(ZONES) * values
    assert len(KEPT["by hand"]) == by_hand


def _utc_without_saying_so(folders: Any, place: int, values: pa.Array) -> list[str | None]:
    """Folder names of releases before moments ended in Z."""
    if pa.types.is_timestamp(values.type):
        clock = values.cast(pa.timestamp("us")).cast(pa.string())
        values = pc.replace_substring_regex(clock, r"\.?0+$", "")
    return [text or None for text in values.cast(pa.string()).to_pylist()]


def _as_hexadecimal(array: pa.Array, column: str) -> pa.StringArray:
    return plain_text(cast_plain(array, plain_type(array.type)), column)


DEFECTS: dict[str, tuple[Any, str, Any, Callable[[], None]]] = {
    "moments in UTC that do not say so": (
        partitions._Columns,
        "texts",
        _utc_without_saying_so,
        lambda: test_every_reader_in_every_zone_reads_the_folders_of_abs_s3_as_they_were_written(
            "timestamp"
        ),
    ),
    "bytes as hexadecimal digits": (
        formats,
        "_spark_text",
        _as_hexadecimal,
        lambda: test_spark_reads_a_file_of_abs_s3_as_it_was_written_or_the_type_is_refused_before(
            "binary", "json"
        ),
    ),
    "types that readers refuse are let through": (
        formats,
        "_check_json",
        lambda plain: None,
        lambda: test_spark_reads_a_file_of_abs_s3_as_it_was_written_or_the_type_is_refused_before(
            "map of numbers", "json"
        ),
    ),
}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_the_checks_find_a_planted_defect(
    defect: tuple[Any, str, Any, Callable[[], None]],
) -> None:
    place, name, wrong, check = defect
    check()
    with planted((place, name, wrong), by=(AssertionError, KeyError, pytest.fail.Exception)):
        check()


@pytest.mark.parametrize("name", ["10%ab", "%E9", "%C3", "a%FFb"])
def test_a_folder_whose_bytes_are_not_utf8_is_refused_by_name(name: str) -> None:
    for folder in (f"rate={name}", f"{name}=1"):
        with pytest.raises(DataError, match="not UTF-8"):
            FolderColumns(pa.schema([("rate", pa.string())]), f"{folder}/a", "the file", None)
