"""Hidden partitions of Iceberg: values are iceberg-spark's own, and filters find each row."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow.parquet import ParquetFile
from pyiceberg.expressions import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    Reference,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, DayTransform, TruncateTransform, parse_transform
from pyiceberg.types import LongType, NestedField

from abs_clients.iceberg.entries import _KIND, Entries
from abs_core.errors import ConfigError, RowError
from abs_sinks.lake.values import to_written
from abs_sinks.s3 import taskfiles
from tests.sample import seed
from tests.sinks.lake.job import Job, batch
from tests.sinks.lake.partition_oracle import (
    KINDS,
    SCRIPT,
    array,
    ask_spark,
    frozen,
    shown,
    transforms,
    values,
)
from tests.sinks.lake.test_lake_readers import asked_of_duckdb
from tests.spark.lake_spark import ask_with_file

Told = Mapping[str, Sequence[str | None]]


def entries_of(kind: str) -> Entries:
    """Of a table that is partitioned by each transform of its column v."""
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "v", _KIND.validate_python(kind))
    )
    spec = PartitionSpec(
        *(
            PartitionField(2, 1000 + n, parse_transform(transform), f"p{n}")
            for n, transform in enumerate(transforms(kind))
        )
    )
    return Entries(new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///w/t", {}))


def differing(
    kind: str, plain: Sequence[Any], told: Told
) -> list[tuple[str, Any, str | None, str | None]]:
    """Transforms and values whose partition value is not Spark's, as a manifest has it.

    Rows that are refused are left out.
    """
    partitions = entries_of(kind).partitions
    [_, field] = pa.schema([("id", pa.int64()), ("v", KINDS[kind])])
    written = to_written(array(kind, plain), WRITTEN.get(kind, field.type), "v")
    rows = pa.record_batch({"id": pa.array(range(len(plain))), "v": written})
    refused = set[int]()
    for _, beyond in partitions.outside(rows):
        refused |= {n for n, bad in enumerate(beyond.to_pylist()) if bad}
    made = pa.RecordBatch.from_arrays(partitions.values(rows), schema=pa.schema(partitions.fields))
    records = [partitions.record(made.slice(n, 1)) for n in range(len(plain))]
    return [
        (transform, plain[n], shown(records[n][place]), told[transform][n])
        for place, transform in enumerate(transforms(kind))
        for n in range(len(plain))
        if n not in refused and shown(records[n][place]) != told[transform][n]
    ]


WRITTEN = {"uuid": pa.uuid(), "fixed[3]": pa.binary(3)}
"""Types of data files that are not those of the input."""


@pytest.mark.parametrize("kind", KINDS)
def test_partition_values_are_those_of_iceberg_spark(kind: str) -> None:
    plain, told = frozen()[kind]
    assert sorted(told) == sorted(transforms(kind))
    assert differing(kind, plain, told) == []


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_partition_values_of_random_rows_are_those_of_iceberg_spark(tmp_path: Path) -> None:
    random = Random(seed())
    rows = {kind: values(kind, random, 200) for kind in KINDS}
    for kind, told in ask_spark(rows, tmp_path).items():
        assert differing(kind, rows[kind], told) == [], kind


# Through the sink.

FIELDS: list[tuple[str, str, str]] = [
    ("seen", "day", "Tag ü/=%?"),
    ("seen", "bucket[4]", "seen bucket"),
    ("id", "truncate[10]", "tens"),
    ("text", "truncate[2]", "text.begin"),
    ("day", "month", "day_month"),
    ("text", "void", "nothing"),
]
"""Columns, transforms and names of fields."""

MOMENTS = [-62_135_596_800_000_000, -1, 0, 1, 86_399_999_999, 253_402_300_799_999_999, None]
WORDS = ["", "\U0001f600\U0001f600a", "__HIVE_DEFAULT_PARTITION__", "ab", "abc", None, "a"]


def rows_from(first: int, count: int = 14) -> pa.RecordBatch:
    ids = [*range(first - 7, first - 7 + count)]
    at = [MOMENTS[n % len(MOMENTS)] for n in range(count)]
    return batch(
        id=pa.array(ids),
        seen=pa.array(at, pa.int64()).cast(pa.timestamp("us", "UTC")),
        day=pa.array([None if us is None else us // 86_400_000_000 for us in at], pa.int32()).cast(
            pa.date32()
        ),
        text=[WORDS[n // 2 % len(WORDS)] for n in range(count)],
    )


def hidden(
    folder: Path, fields: Sequence[tuple[str, str, str]] = FIELDS, version: str = "2", **given: str
) -> Job:
    """A job on a table that is partitioned so; it has the columns of ``rows_from``."""
    job = Job("iceberg", folder, **given)
    job.harness.foreign.create_table(
        "db.t", rows_from(0).schema, properties={"format-version": version}
    )
    with job.table.update_spec() as spec:
        for column, transform, name in fields:
            spec.add_field(column, parse_transform(transform), name)
    return job


def partitions_seen(job: Job) -> dict[int, list[Any]]:
    """By id, the partition values of its file, as the manifest has them."""
    seen = [(number, list(task.file.partition._data)) for task, number in files_with_ids(job)]
    assert len(dict(seen)) == len(seen)
    return dict(seen)


def files_with_ids(job: Job) -> list[tuple[FileScanTask, int]]:
    """Each file with the id of each of its rows."""
    return [
        (task, number)
        for task in job.table.scan().plan_files()
        for number in ParquetFile(task.file.file_path.removeprefix("file://"))
        .read(["id"])["id"]
        .to_pylist()
    ]


def partitions_due(job: Job, rows: pa.RecordBatch) -> dict[int, list[Any]]:
    """The same by the library's transforms of single values, which are other code."""
    table = job.table
    return {
        row["id"]: [
            field.transform.transform(table.schema().find_type(field.source_id))(
                row[table.schema().find_column_name(field.source_id)]
            )
            for field in table.spec().fields
        ]
        for row in rows.to_pylist()
    }


def test_each_file_has_the_partition_of_its_rows(tmp_path: Path) -> None:
    job, rows = hidden(tmp_path), rows_from(0)
    job.epoch(0, rows)
    assert partitions_seen(job) == partitions_due(job, rows)
    assert job.rows() == sorted(rows.to_pylist(), key=repr)
    folders = {path.split("/data/")[1].rpartition("/")[0] for path in files(job)}
    assert (
        "Tag ü%2F%3D%25%3F=1969-12-31/seen bucket=0/tens=-10/text.begin=/"
        "day_month=1969-12/nothing=__HIVE_DEFAULT_PARTITION__" in folders
    )


def files(job: Job) -> list[str]:
    return [task.file.file_path for task in job.table.scan().plan_files()]


SIGNS: dict[str, tuple[Callable[[Any, Any], bool], type[Any]]] = {
    "=": (operator.eq, EqualTo),
    "<": (operator.lt, LessThan),
    "<=": (operator.le, LessThanOrEqual),
    ">": (operator.gt, GreaterThan),
    ">=": (operator.ge, GreaterThanOrEqual),
    "<>": (operator.ne, NotEqualTo),
}

Filter = tuple[str, str, Any]
"""A column, a sign and a value; None with "=": IS NULL."""


def filters(rows: pa.RecordBatch | pa.Table) -> list[Filter]:
    """Each value of each column under each sign."""
    return [
        (name, sign, value)
        for name in rows.schema.names
        for value in dict.fromkeys(rows.column(name).to_pylist())
        for sign in (SIGNS if value is not None else ["="])
    ]


def found_by(asked: Filter, rows: pa.RecordBatch | pa.Table) -> list[int]:
    """The ids that a reader must find."""
    name, sign, value = asked
    if value is None:
        return [row["id"] for row in rows.to_pylist() if row[name] is None]
    fits = SIGNS[sign][0]
    return [
        row["id"] for row in rows.to_pylist() if row[name] is not None and fits(row[name], value)
    ]


def sql_of(asked: Filter, moment: str = "TIMESTAMP WITH TIME ZONE") -> str:
    """As SQL.

    Args:
        moment: the name of the type.
    """
    name, sign, value = asked
    if value is None:
        return f"{name} IS NULL"
    if isinstance(value, datetime):
        return (
            f"{name} {sign} CAST('{value.replace(tzinfo=None).isoformat(' ')}+00:00' AS {moment})"
        )
    if isinstance(value, date):
        return f"{name} {sign} DATE '{value}'"
    return f"{name} {sign} {value!r}"


def expression(asked: Filter) -> Any:
    name, sign, value = asked
    if value is None:
        return IsNull(term=Reference(name))
    return SIGNS[sign][1](name, value.isoformat() if isinstance(value, date) else value)


def test_pyiceberg_finds_each_row_by_a_filter(tmp_path: Path) -> None:
    job, rows = hidden(tmp_path), rows_from(0)
    job.epoch(0, rows)
    check_with_pyiceberg(job, rows, [one for one in filters(rows) if one[1] in ("=", ">=")])


def check_with_pyiceberg(
    job: Job, rows: pa.RecordBatch | pa.Table, asked: Sequence[Filter]
) -> None:
    for one in asked:
        # It counts to the value before, which Python does not have for these.
        if one[1] != "=" and isinstance(one[2], date) and one[2].year in (1, 9999):
            continue
        found = job.table.scan(row_filter=expression(one), selected_fields=("id",)).to_arrow()
        assert sorted(found["id"].to_pylist()) == sorted(found_by(one, rows)), one


@pytest.mark.long
def test_duckdb_finds_each_row_by_a_filter(tmp_path: Path) -> None:
    job, rows = hidden(tmp_path), rows_from(0)
    job.epoch(0, rows)
    check_with_duckdb(job, rows)


def check_with_duckdb(job: Job, rows: pa.RecordBatch | pa.Table) -> None:
    asked = [one for one in filters(rows) if not is_left_out_by_duckdb(one)]
    told = asked_of_duckdb("iceberg", job.table.metadata_location, "id", *map(sql_of, asked))
    for one, found in zip(asked, told, strict=True):
        assert sorted(row["id"] for row in found) == sorted(found_by(one, rows)), one


def is_left_out_by_duckdb(asked: Filter) -> bool:
    """Of filters on days and months DuckDB 1.4 leaves rows out, in iceberg-spark's own tables, too."""
    column, _, value = asked
    return value is not None and (
        column == "day" or (isinstance(value, datetime) and value.year < 1970)
    )


def test_a_value_whose_truncation_no_type_holds_is_refused(tmp_path: Path) -> None:
    """iceberg-spark writes the largest integer for it, where no filter finds the row."""
    job = hidden(tmp_path, [("id", "truncate[10]", "tens")])
    least = pa.array([5, -(2**63)])
    with pytest.raises(RowError, match=r"1 of 2 values have no partition.*row 1 of the task"):
        job.epoch(0, rows_from(0, 2).set_column(0, "id", least))
    job.epoch(0, rows_from(0, 2).set_column(0, "id", pa.array([5, -(2**63) + 8])))
    assert len(job.rows()) == 2


def test_a_nested_column_can_be_partitioned_by(tmp_path: Path) -> None:
    job = Job("iceberg", tmp_path)
    kind = pa.struct([("a.b", pa.struct([("at", pa.timestamp("us", "UTC"))]))])
    values = [{"a.b": {"at": datetime(1969, 12, 31, 23, tzinfo=UTC)}}, {"a.b": None}, None]
    rows = batch(id=[1, 2, 3], s=pa.array(values, kind))
    job.options.address.create(rows.schema, [])
    with job.table.update_spec() as spec:
        spec.add_field("s.a.b.at", DayTransform(), "d")
    job.epoch(0, rows)
    assert partitions_seen(job) == {1: [-1], 2: [None], 3: [None]}


def test_many_partitions_keep_few_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = hidden(tmp_path, [("id", "truncate[1]", "each")], maxopenfiles="3")
    most, begin = 0, taskfiles.TaskFiles._begin

    def counted(self: Any, *given: Any) -> Any:
        nonlocal most
        most = max(most, len(self._open) + 1)
        return begin(self, *given)

    monkeypatch.setattr(taskfiles.TaskFiles, "_begin", counted)
    job.epoch(0, rows_from(0, 40))
    assert (len(job.rows()), len(files(job)), most) == (40, 40, 3)


def test_the_package_of_the_transforms_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = hidden(tmp_path, [("seen", "day", "d")])
    monkeypatch.setitem(sys.modules, "pyiceberg_core", None)
    with pytest.raises(ConfigError, match=r"partitioned by day, which the package pyiceberg-core"):
        job.epoch(0, rows_from(0))


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "lake.md"


def test_the_lines_of_the_page_make_a_table_that_is_written(tmp_path: Path) -> None:
    """As they stand, but for the names of the catalog and the table."""
    [text] = [
        block for block in PAGE.read_text().split("```python\n") if "BucketTransform(16)" in block
    ]
    text = text.split("```")[0]
    job, rows = Job("iceberg", tmp_path), rows_from(0).rename_columns(["id", "at", "day", "text"])
    for name, place in (('"prod"', '"default", **given'), ('"db.visits"', '"db.t"')):
        assert name in text
        text = text.replace(name, place)
    exec(text, {"given": job.harness.catalog, "schema": rows.schema})
    job.epoch(0, rows)
    assert partitions_seen(job) == partitions_due(job, rows)
    assert job.table.spec().fields[1].name == "id_bucket_16"


# A table that changes beside the job.


def changed(job: Job, *fields: tuple[str, str, str]) -> None:
    with job.table.update_spec() as spec:
        for field in job.table.spec().fields:
            spec.remove_field(field.name)
        for column, transform, name in fields:
            spec.add_field(column, parse_transform(transform), name)


def lived(folder: Path, version: str = "2") -> tuple[Job, pa.Table]:
    """A job whose table changes between its epochs, and between a decision and its commit."""
    job = hidden(folder, [("seen", "day", "d")], version)
    epochs = [rows_from(first) for first in (0, 20, 40, 60)]
    job.epoch(0, epochs[0])
    changed(job, ("id", "bucket[4]", "b"))
    job.epoch(1, epochs[1])
    job.decided(2, epochs[2])
    changed(job, ("text", "truncate[2]", "t"), ("day", "year", "y"))
    job.epoch(3, epochs[3])
    return job, pa.Table.from_batches(epochs)


@pytest.mark.parametrize("version", [pytest.param("1", marks=pytest.mark.campaign), "2"])
def test_files_keep_the_specification_that_they_were_written_with(
    version: str, tmp_path: Path
) -> None:
    """In version 1 a field that is removed becomes void."""
    job, rows = lived(tmp_path, version)
    specs = {number: task.file.spec_id for task, number in files_with_ids(job)}
    assert [specs[n] for n in (-7, 13, 33, 53)] == [1, 2, 2, 3]
    assert len(specs) == rows.num_rows
    check_with_pyiceberg(job, rows, filters(rows)[::11])


STEP = 5
"""One of so many filters is asked of Spark, which takes a second for each."""


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_spark_and_duckdb_find_each_row_by_a_filter_whatever_the_table_has_become(
    tmp_path: Path,
) -> None:
    every = hidden(tmp_path / "every")
    every.epoch(0, rows_from(0))
    tables = [(every, pa.Table.from_batches([rows_from(0)])), lived(tmp_path / "a")]
    tables.append(lived(tmp_path / "b", "1"))
    in_spark = partial(sql_of, moment="TIMESTAMP")
    asked = [
        [job.table.metadata_location, list(map(in_spark, filters(rows)[::STEP]))]
        for job, rows in tables
    ]
    told_of_all = ask_with_file(SCRIPT, tmp_path, {"read": asked})
    for (job, rows), told in zip(tables, told_of_all, strict=True):
        check_with_duckdb(job, rows)
        for one, found in zip(filters(rows)[::STEP], told, strict=True):
            assert found == sorted(found_by(one, rows)), one


# Planted.


def by_the_remainder(patch: pytest.MonkeyPatch) -> None:
    """A bucket without Iceberg's hash."""

    def wrong(self: BucketTransform[Any], source: Any) -> Any:
        return lambda column: pa.array(
            [None if value is None else value % 16 for value in column.to_pylist()], pa.int32()
        )

    patch.setattr(BucketTransform, "pyarrow_transform", wrong)


def towards_zero(patch: pytest.MonkeyPatch) -> None:
    """As days before 1970 were in old releases of Iceberg."""

    def wrong(self: DayTransform[Any], source: Any) -> Any:
        return lambda column: pc.divide(column.cast(pa.int64()), 86_400_000_000).cast(pa.int32())

    patch.setattr(DayTransform, "pyarrow_transform", wrong)


def by_bytes(patch: pytest.MonkeyPatch) -> None:
    """Texts are truncated by code points."""

    def wrong(self: TruncateTransform[Any], source: Any) -> Any:
        return lambda column: pc.binary_slice(column.cast(pa.binary()), 0, self._width)

    patch.setattr(TruncateTransform, "pyarrow_transform", wrong)


@pytest.mark.parametrize(
    ("plant", "kind"),
    [(by_the_remainder, "long"), (towards_zero, "timestamp"), (by_bytes, "string")],
)
def test_a_planted_transform_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert differing(kind, *frozen()[kind])


def test_a_planted_wrong_partition_is_found_by_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of a file under the value of another row."""
    towards_zero(monkeypatch)
    with pytest.raises(AssertionError):
        test_pyiceberg_finds_each_row_by_a_filter(tmp_path)
