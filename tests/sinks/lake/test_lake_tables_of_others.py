"""Tables as others make and change them: each reader sees each row, or nothing is written.

Each case makes a table, writes epochs, changes the table between them and after a decision, and tells
what a reader must see. Readers are the table's library, DuckDB, and in the campaign Spark.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)

from abs_clients.iceberg import problems
from abs_core.certificate import MemoryCertificates
from abs_core.errors import AbsError, RefusedError, RegisterLostError, SchemaError
from abs_core.registers import FileRegister
from abs_sinks.iceberg import IcebergSink
from abs_sinks.lake import committer
from abs_sinks.lake.table import Mark
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from tests.kit.random_values import shown
from tests.planted import planted
from tests.sinks.lake.job import Job, batch
from tests.sinks.lake.test_lake_readers import duckdb_at
from tests.spark.lake_spark import ask_with_file

COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])


@dataclass(frozen=True)
class Seen:
    """What a reader must see.

    Args:
        due: rows in order of their ids, by the names of ``columns``.
        columns: SQL that each engine answers alike.
        spark: the same where Spark has other words.
    """

    job: Job
    due: list[dict[str, Any]]
    columns: Mapping[str, str]
    spark: Mapping[str, str] | None = None

    @property
    def place(self) -> str:
        job = self.job
        return job.path if job.kind == "delta" else str(job.table.metadata_location)


def rows(*ids: int) -> pa.RecordBatch:
    return batch(id=pa.array(ids, pa.int64()), text=pa.array([f"t{i}" for i in ids], pa.string()))


def plain(job: Job, *ids: int) -> Seen:
    """A table with just ``rows``."""
    due = [{"id": number, "text": f"t{number}"} for number in sorted(ids)]
    return Seen(job, due, {"id": "id", "text": "text"})


def iceberg(folder: Path, schema: Any = COLUMNS, **given: Any) -> Job:
    job = Job("iceberg", folder)
    job.harness.foreign.create_table("db.t", schema, **given)
    return job


def set_properties(job: Job, **given: str) -> None:
    with job.table.transaction() as change:
        change.set_properties({name.replace("__", "."): value for name, value in given.items()})


# Cases.


def sorted_tables(folder: Path) -> Seen:
    """Files are not sorted, and do not say so."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
    job = iceberg(folder, schema, sort_order=SortOrder(SortField(1, IdentityTransform())))
    job.epoch(0, rows(3, 1, 2))
    [entry] = [
        entry
        for manifest in job.table.current_snapshot().manifests(job.table.io)  # type: ignore[union-attr]
        for entry in manifest.fetch_manifest_entry(job.table.io)
    ]
    assert entry.data_file.sort_order_id in (None, 0)
    return plain(job, 1, 2, 3)


def branches_and_tags(folder: Path) -> Seen:
    """Epochs go to ``main`` alone, beside another branch's commits."""
    job = iceberg(folder)
    job.epoch(0, rows(1))
    first = job.table.current_snapshot()
    assert first is not None
    made = job.table.manage_snapshots().create_branch(first.snapshot_id, "audit")
    made.create_tag(first.snapshot_id, "release").commit()
    job.decided(1, rows(2))
    job.table.append(pa.table({"id": [77], "text": ["t77"]}, COLUMNS), branch="audit")
    job.epoch(2, rows(3))
    audited = job.table.scan().use_ref("audit").to_arrow()
    assert sorted(audited["id"].to_pylist()) == [1, 77]
    return plain(job, 1, 2, 3)


def many_properties(folder: Path) -> Seen:
    """Of places, formats and old metadata."""
    job = iceberg(folder)
    set_properties(
        job,
        write__data__path=f"file://{folder}/elsewhere",
        write__metadata__path=f"file://{folder}/metadata",
        write__format__default="orc",
        write__parquet__compression_codec="gzip",
        write__metadata__previous_versions_max="1",
        gc__enabled="false",
        **{
            "write.object-storage.enabled": "true",
            "write.metadata.compression-codec": "gzip",
            "write.metadata.delete-after-commit.enabled": "true",
            "write.avro.compression-codec": "gzip",
            "write.wap.enabled": "true",
        },
    )
    for number in range(4):
        job.epoch(number, rows(number))
    return plain(job, 0, 1, 2, 3)


def empty_epochs(folder: Path) -> Seen:
    job = iceberg(folder)
    job.epoch(0, rows())
    job.epoch(1, rows(1))
    job.epoch(2, rows())
    job.decided(3, rows(2))
    job.epoch(4, rows())
    return plain(job, 1, 2)


def empty_epochs_in_delta(folder: Path) -> Seen:
    job = Job("delta", folder)
    job.epoch(0, rows())
    job.decided(1, rows(1))
    job.epoch(2, rows())
    return plain(job, 1)


def metrics_of_parts(folder: Path) -> Seen:
    """Modes of columns whose names have dots, and of parts of a struct; NaN in lists."""
    kind = pa.struct([("x.y", pa.string()), ("z", pa.list_(pa.float64()))])

    def more(number: int) -> pa.RecordBatch:
        part = {"x.y": "q" * 40, "z": [1.5, math.nan]}
        return batch(id=[number], **{"a.b": ["x" * 40], "s": pa.array([part], kind)})

    job = Job("iceberg", folder)
    job.epoch(0, more(0))
    set_properties(
        job,
        **{
            "write.metadata.metrics.column.a.b": "full",
            "write.metadata.metrics.column.s.x.y": "none",
            "write.metadata.metrics.max-inferred-column-defaults": "1",
        },
    )
    job.epoch(1, more(1))
    due = [{"id": number, "a": "x" * 40, "s": "q" * 40} for number in range(2)]
    columns = {"id": "id", "a": '"a.b"', "s": 's."x.y"'}
    return Seen(job, due, columns, {"id": "id", "a": "`a.b`", "s": "s.`x.y`"})


def columns_that_the_input_lacks(folder: Path) -> Seen:
    """Of types that Spark does not have, or does not write."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "text", StringType()),
        NestedField(3, "at", TimeType()),
        NestedField(4, "list", ListType(5, FixedType(2), element_required=False)),
        NestedField(6, "map", MapType(7, UUIDType(), 8, TimeType(), value_required=False)),
    )
    job = iceberg(folder, schema)
    job.epoch(0, rows(1))
    return plain(job, 1)


NUMBER = "00112233-4455-6677-8899-aabbccddeeff"


def uuids_inside(folder: Path) -> Seen:
    """In lists, maps and structs; NULL among them."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "l", ListType(3, UUIDType(), element_required=False)),
        NestedField(4, "m", MapType(5, StringType(), 6, UUIDType(), value_required=False)),
        NestedField(7, "s", StructType(NestedField(8, "u", UUIDType()))),
    )
    job = iceberg(folder, schema)
    job.epoch(
        0,
        batch(
            id=[1],
            l=pa.array([[NUMBER, None]], pa.list_(pa.string())),
            m=pa.array([[("k", NUMBER)]], pa.map_(pa.string(), pa.string())),
            s=pa.array([{"u": NUMBER}], pa.struct([("u", pa.string())])),
        ),
    )
    due = [{"id": 1, "l": NUMBER, "m": NUMBER, "s": NUMBER}]
    duckdb = {"id": "id", "l": "l[1]::varchar", "m": "m['k']::varchar", "s": "s.u::varchar"}
    spark = {"id": "id", "l": "l[0]", "m": "m['k']", "s": "s.u"}
    return Seen(job, due, duckdb, spark)


def parts_moved_and_renamed(folder: Path) -> Seen:
    """In lists of structs, between a decision and its commit."""
    inner = pa.struct([("p", pa.string()), ("q", pa.int32())])
    kind = pa.struct([("x", pa.int32()), ("y", pa.list_(inner))])

    def of(number: int) -> pa.RecordBatch:
        value = {"x": number, "y": [{"p": f"p{number}", "q": number}]}
        return batch(id=[number], s=pa.array([value], kind))

    job = Job("iceberg", folder)
    job.epoch(0, of(0))
    job.decided(1, of(1))
    with job.table.update_schema() as schema:
        schema.move_first("s")
        schema.rename_column(("s", "y", "element", "p"), "pp")
        schema.add_column(("s", "y", "element", "new"), StringType())
        schema.update_column(("s", "y", "element", "q"), LongType())
        schema.move_before(("s", "y"), ("s", "x"))
    wider = pa.struct([("pp", pa.string()), ("q", pa.int64()), ("new", pa.string())])
    new = {"y": [{"pp": "p2", "q": 2, "new": "n"}], "x": 2}
    turned = pa.struct([("y", pa.list_(wider)), ("x", pa.int32())])
    job.epoch(2, batch(id=[2], s=pa.array([new], turned)))
    due = [
        {"id": n, "pp": f"p{n}", "q": n, "new": "n" if n == 2 else None, "x": n} for n in range(3)
    ]
    columns = {"id": "id", "x": "s.x", **{n: f"s.y[1].{n}" for n in ("pp", "q", "new")}}
    return Seen(job, due, columns, {n: sql.replace("[1]", "[0]") for n, sql in columns.items()})


def names_of_metadata(folder: Path) -> Seen:
    """Names that engines have for a row's file, its place in it, and for changes."""
    names = ("_change_type", "_metadata", "_commit_version", "file_path", "pos")
    job = Job("iceberg", folder)
    job.epoch(0, batch(id=[1], **{name: [name] for name in names}))
    return Seen(job, [{"id": 1, **{n: n for n in names}}], {"id": "id", **{n: n for n in names}})


def identifiers(folder: Path) -> Seen:
    """As upsert tables of Flink have them: a part of a struct is one, which must not be NULL."""
    key = StructType(NestedField(3, "k", LongType(), required=True))
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "text", StringType()),
        identifier_field_ids=[1],
    )
    job = iceberg(folder, schema)
    job.epoch(0, rows(1))
    job.decided(1, rows(2))
    with job.table.update_schema() as change:
        change.set_identifier_fields()
    job.epoch(2, rows(3))
    nested = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "key", key, required=True),
        identifier_field_ids=[3],
    )
    job.harness.foreign.create_table("db.nested", nested)
    return plain(job, 1, 2, 3)


def a_new_order_and_partitions_after_the_decision(folder: Path) -> Seen:
    job = iceberg(folder)
    job.epoch(0, rows(1, 2))
    job.decided(1, rows(3, 4))
    with job.table.update_sort_order() as order:
        order.desc("id", IdentityTransform())
    with job.table.update_spec() as spec:
        spec.add_field("id", BucketTransform(8), "b")
    job.epoch(2, rows(5))
    job.decided(3, rows(6))
    with job.table.update_spec() as spec:
        spec.rename_field("b", "bucket of id")
    job.epoch(4, rows(7))
    return plain(job, *range(1, 8))


def rolled_back_after_the_decision(folder: Path) -> Seen:
    """What is decided is added to what ``main`` is now."""
    job = iceberg(folder)
    job.epoch(0, rows(1))
    first = job.table.current_snapshot()
    assert first is not None
    job.table.append(pa.table({"id": [50], "text": ["t50"]}, COLUMNS))
    job.decided(1, rows(2))
    job.table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    job.epoch(2, rows(3))
    return plain(job, 1, 2, 3)


def all_of_one_value(folder: Path) -> Seen:
    """Columns of NULL alone, of NaN alone, of zeros of both signs: bounds keep no row from a filter."""
    job = Job("iceberg", folder)
    values = [None, math.nan, -0.0, 0.0, math.inf, -math.inf]
    for number, value in enumerate(values):
        job.epoch(number, batch(id=[number], f=pa.array([value], pa.float64())))
    found = {
        sql: sorted(job.table.scan(row_filter=sql).to_arrow()["id"].to_pylist())
        for sql in ("f is null", "f is nan", "f == 0.0", "f < 0.0", "f > 1.0")
    }
    assert found == {
        "f is null": [0],
        "f is nan": [1],
        "f == 0.0": [2, 3],
        "f < 0.0": [5],
        "f > 1.0": [4],
    }
    due = [
        {"id": n, "null": v is None, "zero": None if v is None else v == 0}
        for n, v in enumerate(values)
    ]
    return Seen(job, due, {"id": "id", "null": "f IS NULL", "zero": "f = 0"})


def delta_settings(folder: Path) -> Seen:
    """Of statistics, checkpoints and change data."""
    job = Job("delta", folder)
    job.options.address.create(COLUMNS, [])
    DeltaTable(job.path).alter.set_table_properties(
        {
            "delta.dataSkippingNumIndexedCols": "0",
            "delta.checkpointInterval": "2",
            "delta.appendOnly": "true",
            "delta.enableChangeDataFeed": "true",
            "delta.targetFileSize": "1000",
        }
    )
    for number in range(4):
        job.epoch(number, rows(number))
    return plain(job, 0, 1, 2, 3)


def a_delta_column_after_the_decision(folder: Path) -> Seen:
    job = Job("delta", folder)
    job.epoch(0, rows(1))
    job.decided(1, rows(2))
    more = pa.table({"id": [3], "text": ["t3"], "more": [7]})
    write_deltalake(job.path, more, mode="append", schema_mode="merge")
    job.epoch(2, rows(4))
    due = [{"id": n, "more": 7 if n == 3 else None} for n in (1, 2, 3, 4)]
    return Seen(job, due, {"id": "id", "more": "more"})


CASES = [
    sorted_tables,
    branches_and_tags,
    many_properties,
    empty_epochs,
    empty_epochs_in_delta,
    metrics_of_parts,
    columns_that_the_input_lacks,
    uuids_inside,
    parts_moved_and_renamed,
    names_of_metadata,
    identifiers,
    a_new_order_and_partitions_after_the_decision,
    rolled_back_after_the_decision,
    all_of_one_value,
    delta_settings,
    a_delta_column_after_the_decision,
]
IN_SAMPLE = (uuids_inside, many_properties)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [c if c in IN_SAMPLE else pytest.param(c, marks=pytest.mark.campaign) for c in CASES],
)
def test_duckdb_sees_each_row(case: Callable[[Path], Seen], tmp_path: Path) -> None:
    seen = case(tmp_path)
    columns = ", ".join(asked_of(seen.columns, '"'))
    found = duckdb_at(seen.job.kind, seen.place, columns)
    assert list(map(shown, found)) == list(map(shown, seen.due))
    assert len(seen.job.rows()) == len(seen.due)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_spark_sees_each_row(tmp_path: Path) -> None:
    cases = [case for case in CASES if case is not columns_that_the_input_lacks]  # no time in Spark
    every = [case(tmp_path / case.__name__) for case in cases]
    asked = [
        [seen.job.kind, seen.place, asked_of(seen.spark or seen.columns, "`")] for seen in every
    ]
    told = ask_with_file("read_tables.py", tmp_path, asked)
    for case, seen, found in zip(cases, every, told, strict=True):
        found = sorted(found, key=lambda row: int(row["id"]))
        assert list(map(shown, found)) == list(map(shown, seen.due)), case.__name__


def asked_of(columns: Mapping[str, str], quote: str) -> list[str]:
    return [f"{sql} AS {quote}{name}{quote}" for name, sql in columns.items()]


# What is refused before the decision.


class Missing(Codec):
    @staticmethod
    def compress(data: bytes) -> tuple[bytes, int]:
        raise ImportError("snappy")

    @staticmethod
    def decompress(data: bytes) -> bytes:
        raise ImportError("snappy")


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"encryption.key-id": "key"}, r"asks for encrypted files \(encryption.key-id = key\)"),
        ({"write.avro.compression-codec": "snappy"}, "snappy, for which a package is missing"),
    ],
)
def test_what_a_commit_could_not_keep_is_refused_before_it(
    properties: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KNOWN_CODECS, "snappy", Missing)  # as where it is not installed
    job = iceberg(tmp_path)
    job.refused(why, rows(1), lambda: set_properties(job, **properties))
    with pytest.raises(SchemaError, match=why):
        job.epoch(0, rows(1))
    with job.table.transaction() as change:
        change.remove_properties(*properties)
    job.epoch(0, rows(1))
    assert job.rows() == rows(1).to_pylist()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_names_that_differ_by_case_alone_make_no_table(kind: str, tmp_path: Path) -> None:
    """Spark cannot read such a table, and DuckDB reads one part of a struct for the other."""
    inside = pa.array([{"a": 1, "A": 2}], pa.struct([("a", pa.int64()), ("A", pa.int64())]))
    for columns in ({"a": ["x"], "A": ["y"]}, {"s": inside}):
        job = Job(kind, tmp_path / f"{len(columns)}")
        with pytest.raises(SchemaError, match="case"):
            job.epoch(0, batch(id=[1], **columns))
        assert job.options.address.load() is None
    job = Job(kind, tmp_path / "adds")
    job.epoch(0, rows(1))
    with pytest.raises(SchemaError, match="case alone"):
        job.epoch(1, batch(id=[2], s=inside), schemachange="add")
    assert job.rows() == rows(1).to_pylist()


def located(job: Job, location: str) -> None:
    with job.table.transaction() as change:
        change._apply((SetLocationUpdate(location=location),))


def test_a_location_that_changes_beside_a_job_is_refused_and_the_remedy_works(
    tmp_path: Path,
) -> None:
    """The commit named files below the new location, where none was."""
    job = iceberg(tmp_path)
    before, after = job.table.location(), f"file://{tmp_path}/elsewhere"
    job.refused("files are below .*, and the table is at", rows(1), lambda: located(job, after))
    assert job.rows() == []
    located(job, before)
    register = FileRegister(tmp_path / "register")  # as of another sink of the epoch

    def run(number: int, cut: Cut | None = None) -> None:
        run = Run(IcebergSink(job.options, COLUMNS), "job", store=register, cut=cut)
        attempt = run.attempt(number, 0).write()
        attempt.writer.write(rows(number))
        attempt._rows += 1
        run.commit(number, [attempt.pre_commit()])

    run(0)
    with pytest.raises(Halted):
        run(1, Cut("commit"))
    located(job, after)
    with pytest.raises(RefusedError, match=r"set the table's location to .* again until"):
        run(2)
    assert job.rows() == rows(0).to_pylist()
    located(job, before)
    run(2)
    assert job.rows() == rows(0, 1, 2).to_pylist()


def test_a_location_that_takes_the_register_away_is_told_by_the_checkpoint(tmp_path: Path) -> None:
    job, checkpoint = iceberg(tmp_path), MemoryCertificates()
    run = Run(IcebergSink(job.options, COLUMNS), "job", certificates=checkpoint)
    attempt = run.attempt(0, 0)
    run.commit(0, [attempt.pre_commit()])
    located(job, f"file://{tmp_path}/elsewhere")
    with pytest.raises(RegisterLostError):
        Run(IcebergSink(job.options, COLUMNS), "job", certificates=checkpoint).begin(1)


def test_a_column_that_must_not_be_null_any_more_keeps_decided_nulls_out(tmp_path: Path) -> None:
    job = Job("delta", tmp_path)

    def laid_out(nullable: bool) -> None:
        schema = pa.schema([("id", pa.int64()), pa.field("text", pa.string(), nullable)])
        table = pa.table({"id": [9], "text": ["t9"]}, schema)
        write_deltalake(job.path, table, mode="overwrite", schema_mode="overwrite")

    job.epoch(0, rows(1))
    with_null = batch(id=[2], text=pa.array([None], pa.string()))
    job.decided(1, with_null)
    laid_out(nullable=False)
    with pytest.raises(RefusedError, match="text must not be NULL in the table now"):
        job.epoch(2, rows(3))
    assert job.rows() == rows(9).to_pylist()
    laid_out(nullable=True)
    job.epoch(2, rows(3))
    assert {row["id"]: row["text"] for row in job.rows()} == {2: None, 3: "t3", 9: "t9"}


def test_a_column_that_could_never_be_null_stays_so_between_decision_and_commit(
    tmp_path: Path,
) -> None:
    job = Job("delta", tmp_path)
    schema = pa.schema([("id", pa.int64()), pa.field("text", pa.string(), nullable=False)])
    write_deltalake(job.path, pa.table({"id": [9], "text": ["t9"]}, schema))
    job.decided(0, rows(1))
    job.epoch(1, rows(2))
    assert [row["id"] for row in job.rows()] == [1, 2, 9]


def upgraded(job: Job) -> None:
    """To format version 3, which pyiceberg reads and does not write."""
    with_metadata(job, lambda metadata: metadata | {"format-version": 3, "next-row-id": 0})


def with_metadata(job: Job, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """A state of the table that the library does not write."""
    path = Path(job.table.metadata_location.removeprefix("file://"))
    new = path.with_name(f"99999-{path.name}")
    new.write_text(json.dumps(change(json.loads(path.read_text()))))
    with sqlite3.connect(job.harness.catalog["uri"].removeprefix("sqlite:///")) as connection:
        connection.execute("update iceberg_tables set metadata_location = ?", [f"file://{new}"])


def test_a_table_of_version_3_is_refused_and_keeps_what_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = iceberg(tmp_path)
    job.epoch(0, rows(1))
    job.decided(1, rows(2))
    before = job.table.metadata_location
    upgraded(job)
    with pytest.raises(SchemaError, match="format version 3"):
        job.epoch(2, rows(3))
    with monkeypatch.context() as patch:  # as a running job sees it, and `abs in-doubt commit`
        patch.setattr(problems, "VERSION", 3)
        table = job.options.address.load()
        assert table is not None
        assert list(table.problems()) == []
    with pytest.raises(RefusedError, match=r"version 3 now, .* then register_table"):
        table.add([], Mark("a", 1, {}))
    job.harness.foreign.drop_table("db.t")
    job.harness.foreign.register_table("db.t", before)
    job.epoch(2, rows(3))
    assert job.rows() == rows(1, 2, 3).to_pylist()


# Planted.


located_anew = test_a_location_that_changes_beside_a_job_is_refused_and_the_remedy_works
required = test_a_column_that_must_not_be_null_any_more_keeps_decided_nulls_out


@pytest.mark.parametrize(("told", "check"), [("LOCATION", located_anew), ("REQUIRED", required)])
def test_what_a_decision_does_not_tell_is_noticed(
    told: str, check: Callable[[Path], None], tmp_path: Path
) -> None:
    with planted(
        (committer, told, "not told"), by=(AbsError, AssertionError, pytest.fail.Exception)
    ):
        check(tmp_path)
