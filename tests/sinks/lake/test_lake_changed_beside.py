"""What others change of a table, and of its properties, beside a job: more of the same kinds.

Each was a wrong value or a stuck job once; ``tests/spark/test_spark_lake_ddl.py`` does likewise by
Spark's own SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DecimalType, LongType

from abs_clients.delta import evolve
from abs_clients.iceberg import problems
from abs_core.errors import AbsError, RefusedError, SchemaError
from abs_core.model import Wrote
from abs_sinks.lake.table import Mark
from abs_testing.engine import Attempt, Run
from tests.planted import Bug, Plant, planted
from tests.sinks.lake.job import Job, batch
from tests.sinks.lake.test_lake_readers import asked_of_duckdb
from tests.sinks.lake.test_lake_tables_of_others import (
    iceberg,
    rows,
    set_properties,
    with_metadata,
)

KINDS = ["delta", "iceberg"]
STRUCT = pa.struct([("a", pa.int64())])
WIDER = pa.struct([("a", pa.int64()), ("b", pa.string())])


# Names.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["fail", "ignore", "add"])
def test_a_name_that_differs_by_case_alone_is_never_left_out(
    kind: str, change: str, tmp_path: Path
) -> None:
    """Under ``ignore`` the table's own column was NULL, and nobody was told."""
    job = Job(kind, tmp_path)
    job.epoch(0, rows(1))
    with pytest.raises(SchemaError, match=r"Text is (text|not) in the table"):
        job.epoch(1, batch(id=[2], Text=["t2"]), schemachange=change)
    assert job.rows() == rows(1).to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_column_that_differs_by_case_alone_is_ignored(kind: str, tmp_path: Path) -> None:
    job = Job(kind, tmp_path)
    job.epoch(0, rows(1))
    job.epoch(1, batch(id=[2], text=["t2"], Text=["no"]), schemachange="ignore")
    assert job.rows() == rows(1, 2).to_pylist()


@pytest.mark.parametrize("name", ["_file", "_row_id", "_partition"])
def test_a_new_column_of_a_name_that_iceberg_keeps_is_refused(name: str, tmp_path: Path) -> None:
    """Spark reads no table with it."""
    job = Job("iceberg", tmp_path)
    mine = rows(1).append_column(name, pa.array([1]))
    with pytest.raises(SchemaError, match=f"has a meaning for the names {name}"):
        job.epoch(0, mine)
    job.epoch(0, rows(1))
    with pytest.raises(SchemaError, match=f"has a meaning for the names {name}"):
        job.epoch(1, mine, schemachange="add")
    assert job.rows() == rows(1).to_pylist()


# Columns.


def test_a_part_that_must_not_be_null_by_now_is_refused_before_the_decision(tmp_path: Path) -> None:
    job = iceberg(tmp_path, pa.schema([("id", pa.int64()), ("s", STRUCT)]))

    def required() -> None:
        with job.table.update_schema(allow_incompatible_changes=True) as schema:
            schema.update_column(("s", "a"), required=True)

    nulls = batch(id=[1], s=pa.array([{"a": None}], STRUCT))
    job.refused("s has parts that must not be NULL in the table", nulls, required)
    assert job.rows() == []


def with_part(job: Job) -> None:
    """Another writer's rows have a part more; they are in the table afterwards."""
    more = pa.table({"id": [9], "s": pa.array([[{"a": 9, "b": "b9"}]], pa.list_(WIDER))})
    write_deltalake(job.path, more, mode="append", schema_mode="merge")


@pytest.mark.parametrize("decided", [True, False])
def test_a_part_of_a_struct_that_came_beside_a_delta_job_is_null_in_its_rows(
    decided: bool, tmp_path: Path
) -> None:
    """Nobody can take such a part away again: the decision could never be committed."""
    job = Job("delta", tmp_path)

    def of(number: int) -> pa.RecordBatch:
        return batch(id=[number], s=pa.array([[{"a": number}]], pa.list_(STRUCT)))

    job.epoch(0, of(0))
    if decided:
        job.decided(1, of(1))
        with_part(job)
        wider = pa.array([[{"a": 2, "b": "b2"}]], pa.list_(WIDER))
        job.epoch(2, batch(id=[2], s=wider))
    else:
        run = Run(job.sink(job.options, of(1).schema), "job")
        made = prepared(run.attempt(1, 0), of(1))
        with_part(job)
        run.commit(1, [made])
    with pytest.raises(SchemaError, match="s is array<"):
        job.epoch(3, of(3))
    seen = {row["id"]: row["s"][0] for row in job.rows()}
    due = {0: None, 1: None, 9: "b9"} | ({2: "b2"} if decided else {})
    assert seen == {number: {"a": number, "b": b} for number, b in due.items()}


def test_a_part_of_another_type_beside_a_delta_job_is_refused(tmp_path: Path) -> None:
    job = Job("delta", tmp_path)
    job.epoch(0, batch(id=[0], s=pa.array([{"a": 0}], STRUCT)))
    job.decided(1, batch(id=[1], s=pa.array([{"a": 1}], STRUCT)))
    other = pa.struct([("a", pa.string()), ("b", pa.string())])
    table = pa.table({"id": [9], "s": pa.array([{"a": "x", "b": "y"}], other)})
    write_deltalake(job.path, table, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(RefusedError, match="s is struct<"):
        job.epoch(2, batch(id=[2], s=pa.array([{"a": "2", "b": "2"}], other)))


def test_a_column_that_somebody_adds_at_the_same_moment_keeps_its_type(tmp_path: Path) -> None:
    """The library gives a column the wider type where it is there already."""
    job = iceberg(tmp_path)
    with job.table.update_schema() as schema:
        schema.union_by_name(pa.schema([("n", pa.int32())]))
    job.options.address.widen(pa.schema([("n", pa.int64()), ("m", pa.int64())]))
    kinds = {field.name: str(field.field_type) for field in job.table.schema().fields}
    assert kinds == {"id": "long", "text": "string", "n": "int", "m": "long"}
    with pytest.raises(SchemaError, match="n is bigint, in the table int"):
        job.epoch(0, rows(1).append_column("n", pa.array([1])), schemachange="add")


def test_a_column_that_an_epoch_adds_leaves_the_rest_of_a_delta_table_as_it_is(
    tmp_path: Path,
) -> None:
    """Comments, the table's name and description, and its properties."""
    job = Job("delta", tmp_path)
    comment = pa.field("id", pa.int64(), metadata={b"comment": b"a number"})
    DeltaTable.create(
        job.path,
        pa.schema([comment]),
        name="payments",
        description="all of them",
        configuration={"delta.appendOnly": "true"},
    )
    before = DeltaTable(job.path)
    job.epoch(0, rows(1), schemachange="add")
    after = DeltaTable(job.path)
    assert (
        json.loads(after.schema().to_json())["fields"][:1]
        == (json.loads(before.schema().to_json())["fields"])
    )
    told = [
        (m.id, m.name, m.description, m.configuration, m.created_time)
        for m in (before.metadata(), after.metadata())
    ]
    assert told[0] == told[1]
    assert job.rows() == rows(1).to_pylist()


SIGNS = ["\U00020bb7\u91ce\u5bb6", "\U0010ffff", "\U0001f600", "\ud7ff", '"\\\n', "\u2028\x85"]
"""Texts from several planes of Unicode: a rare Chinese name, and signs that JSON escapes."""


def written_with_signs(folder: Path) -> Job:
    """In values, statistics, partitions and names of columns, by each way to write a version."""
    job = Job("delta", folder, partitionby="p")
    for number, sign in enumerate(SIGNS):
        more = {f"c {n}": [n] for n in SIGNS[:number] if n.isprintable() and '"' not in n}
        job.epoch(number, batch(id=[number], x=[sign], p=[sign], **more), schemachange="add")
    return job


def check_signs(folder: Path) -> None:
    job = written_with_signs(folder)
    assert {row["id"]: (row["x"], row["p"]) for row in job.rows()} == {
        number: (sign, sign) for number, sign in enumerate(SIGNS)
    }
    assert len(job.options.address.history().commits) > len(SIGNS)
    assert [name for name in DeltaTable(job.path).schema().to_arrow().names if name[0] == "c"] == [
        "c \U00020bb7\u91ce\u5bb6",
        "c \U0001f600",
    ]


def test_no_sign_is_read_as_another_from_a_delta_log(tmp_path: Path) -> None:
    """Arrow's Rust reader, by which deltalake and DuckDB read logs, takes some escapes for others."""
    check_signs(tmp_path)


@pytest.mark.long
def test_duckdb_finds_each_sign_by_statistics_and_partitions(tmp_path: Path) -> None:
    """A rare Chinese name was not found by a filter."""
    job = written_with_signs(tmp_path)
    signs = [f"decode(unhex('{sign.encode().hex()}'))" for sign in SIGNS]
    asked = [f"{column} = {sign}" for column in "xp" for sign in signs]
    seen = asked_of_duckdb("delta", job.path, "id", *asked)
    assert seen == [[{"id": number}] for number in range(len(SIGNS))] * 2


# Partitions.


def test_a_field_that_version_1_made_void_asks_for_no_column(tmp_path: Path) -> None:
    job = iceberg(tmp_path, properties={"format-version": "1"})
    with job.table.update_spec() as spec:
        spec.add_field("text", TruncateTransform(2), "t")
    job.epoch(0, rows(1))
    with job.table.update_spec() as spec:
        spec.remove_field("t")
    job.epoch(1, batch(id=[2]))
    assert job.rows() == [{"id": 1, "text": "t1"}, {"id": 2, "text": None}]


def test_a_partition_whose_column_gets_a_wider_type_is_found_by_filters(tmp_path: Path) -> None:
    kinds = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("d", pa.decimal128(9, 2))])
    job = iceberg(
        tmp_path,
        kinds,
        properties={
            "commit.manifest-merge.enabled": "true",
            "commit.manifest.min-count-to-merge": "2",
        },
    )
    with job.table.update_spec() as spec:
        spec.add_field("n", IdentityTransform(), "n")
        spec.add_field("n", BucketTransform(4), "nb")
        spec.add_field("d", TruncateTransform(100), "dt")

    def of(number: int, n: pa.DataType, d: pa.DataType) -> pa.RecordBatch:
        columns = {"id": [number], "n": pa.array([-number], n)}
        return batch(**columns, d=pa.array([Decimal(-number)], d))

    old = pa.int32(), pa.decimal128(9, 2)
    job.epoch(0, of(1, *old))
    job.decided(1, of(2, *old))
    with job.table.update_schema() as schema:
        schema.update_column("n", LongType())
        schema.update_column("d", DecimalType(20, 2))
    for number in (3, 4):
        job.epoch(number - 1, of(number, pa.int64(), pa.decimal128(20, 2)))
    for number in range(1, 5):
        for column in ("n", "d"):
            seen = job.table.scan(row_filter=f"{column} == -{number}").to_arrow()
            assert seen["id"].to_pylist() == [number], (column, number)


def prepared(attempt: Attempt, batch: pa.RecordBatch) -> Wrote:
    """What a task that has written one batch tells."""
    attempt.writer.write(batch)
    attempt._rows += batch.num_rows
    return attempt.pre_commit()


def cleaned(metadata: dict[str, Any]) -> dict[str, Any]:
    kept = [spec for spec in metadata["partition-specs"] if not spec["fields"]]
    return metadata | {"partition-specs": kept}


def test_a_partition_field_that_was_cleaned_away_is_added_again_and_the_epoch_is_committed(
    tmp_path: Path,
) -> None:
    """As by Spark's ``expire_snapshots`` with ``clean_expired_metadata``; the remedy had no effect."""

    job = iceberg(tmp_path)
    with job.table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "b")
    old = job.table.spec().fields[0].field_id
    job.decided(0, rows(1, 2, 3))
    with job.table.update_spec() as spec:
        spec.remove_field("b")
    with_metadata(job, cleaned)
    with pytest.raises(RefusedError, match="forgotten the partition fields b"):
        job.epoch(1, rows(4))
    with job.table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "b")
    assert job.table.spec().fields[0].field_id != old
    job.epoch(1, rows(4))
    assert job.rows() == rows(1, 2, 3, 4).to_pylist()
    for number in range(1, 5):
        assert job.table.scan(row_filter=f"id == {number}").to_arrow().num_rows == 1


def test_a_partition_field_that_is_cleaned_away_under_a_task_stops_its_epoch_undecided(
    tmp_path: Path,
) -> None:
    """Nothing that can refuse stands behind the decision; the remedy is applied."""
    job = iceberg(tmp_path)
    with job.table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "b")
    run = Run(job.sink(job.options, rows().schema), "job")
    run.begin(0)
    made = [prepared(run.attempt(0), rows(1, 2, 3))]
    with job.table.update_spec() as spec:
        spec.remove_field("b")
    with_metadata(job, cleaned)
    with pytest.raises(SchemaError, match="lost the partition fields b") as refused:
        run.commit(0, made)
    assert "start the query again" in str(refused.value)
    job.epoch(0, rows(1, 2, 3))
    assert job.rows() == rows(1, 2, 3).to_pylist()


def test_tasks_of_one_epoch_that_saw_two_layouts_are_committed_together(tmp_path: Path) -> None:
    job = iceberg(tmp_path)
    made, run = [], Run(job.sink(job.options, rows().schema), "job")
    run.begin(0)
    for task, ids in enumerate([(1, 2), (3, 4)]):
        attempt = Run(job.sink(job.options, rows().schema), "job", run=run.who.run).attempt(0, task)
        made.append(prepared(attempt, rows(*ids)))
        with job.table.update_spec() as spec:
            spec.add_field("id", BucketTransform(4 + task), f"b{task}")
    run.commit(0, made)
    specs = {task.file.spec_id for task in job.table.scan().plan_files()}
    assert job.rows() == rows(1, 2, 3, 4).to_pylist()
    assert len(specs) == 2


# Properties, statistics, versions.


def broken(job: Job) -> None:
    set_properties(job, **{"commit.manifest.min-count-to-merge": "many"})


def test_a_property_that_is_damaged_after_the_decision_is_named_and_the_remedy_works(
    tmp_path: Path,
) -> None:
    """To a running job, and to ``abs in-doubt commit``, it was an unexpected error."""
    job = iceberg(tmp_path, properties={"commit.manifest-merge.enabled": "true"})
    job.epoch(0, rows(1))
    job.decided(1, rows(2))
    broken(job)
    table = job.options.address.load()
    assert table is not None
    with pytest.raises(RefusedError, match=r"A property of the table cannot be used.*an integer"):
        table.add([], Mark("a", 1, {}))
    with pytest.raises(SchemaError, match="A property of the table cannot be used"):
        job.epoch(2, rows(3))
    with job.table.transaction() as change:
        change.remove_properties("commit.manifest.min-count-to-merge")
    job.epoch(2, rows(3))
    assert job.rows() == rows(1, 2, 3).to_pylist()


def test_a_mark_that_somebody_removes_from_the_properties_does_not_write_an_epoch_again(
    tmp_path: Path,
) -> None:
    """As a tool does that sets a table's properties to a list of its own."""
    job = iceberg(tmp_path)
    job.epoch(0, rows(1))
    job.committed(1, rows(2))
    marks = [name for name in job.table.properties if name.startswith("abs-")]
    assert len(marks) == 1
    with job.table.transaction() as change:
        change.remove_properties(*marks)
    job.epoch(2, rows(3))
    assert job.rows() == rows(1, 2, 3).to_pylist()


def test_statistics_of_a_snapshot_stay_where_they_are(tmp_path: Path) -> None:
    job = iceberg(tmp_path)
    job.epoch(0, rows(1))
    job.decided(1, rows(2))
    snapshot = job.table.current_snapshot()
    assert snapshot is not None
    blob = {
        "type": "apache-datasketches-theta-v1",
        "snapshot-id": snapshot.snapshot_id,
        "sequence-number": 1,
        "fields": [1],
        "properties": {"ndv": "1"},
    }
    made = StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot.snapshot_id,
            "statistics-path": f"file://{tmp_path}/s.puffin",
            "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 5,
            "blob-metadata": [blob],
        }
    )
    with job.table.update_statistics() as statistics:
        statistics.set_statistics(made)
    job.epoch(2, rows(3))
    assert job.rows() == rows(1, 2, 3).to_pylist()
    assert [one.snapshot_id for one in job.table.metadata.statistics] == [snapshot.snapshot_id]


def test_a_table_of_version_1_that_becomes_2_after_the_decision_takes_what_is_decided(
    tmp_path: Path,
) -> None:
    job = iceberg(tmp_path, properties={"format-version": "1"})
    with job.table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "b")
    job.epoch(0, rows(1))
    job.decided(1, rows(2))
    with job.table.transaction() as change:
        change.upgrade_table_version(2)
    job.epoch(2, rows(3))
    job.decided(3, rows(4))
    with job.table.update_spec() as spec:
        spec.remove_field("b")
    job.epoch(4, rows(5))
    assert job.rows() == rows(1, 2, 3, 4, 5).to_pylist()
    numbers = [one.sequence_number for one in job.table.metadata.snapshots]
    assert numbers[-1] == max(n or 0 for n in numbers) > 0
    assert job.table.spec() == UNPARTITIONED_PARTITION_SPEC or not job.table.spec().fields


# Delta: rules.


def test_a_feature_that_deltalake_adds_with_a_property_stops_no_job(tmp_path: Path) -> None:
    """It gives each table with a moment without zone the feature for VARIANT, which no column has."""
    job = Job("delta", tmp_path)

    def of(number: int) -> pa.RecordBatch:
        return batch(id=[number], moment=pa.array([number], pa.timestamp("us")))

    job.epoch(0, of(0))
    job.decided(1, of(1))
    DeltaTable(job.path).alter.set_table_properties({"delta.checkpointInterval": "2"})
    assert "variantType" in (DeltaTable(job.path).protocol().writer_features or ())
    job.epoch(2, of(2))
    assert [row["id"] for row in job.rows()] == [0, 1, 2]
    seen = asked_of_duckdb("delta", job.path, "id", "moment >= TIMESTAMP '1970-01-01'")
    assert sorted(row["id"] for row in seen[0]) == [0, 1, 2]


def test_a_constraint_after_the_decision_keeps_the_epoch_out_and_the_remedy_works(
    tmp_path: Path,
) -> None:
    job = Job("delta", tmp_path)
    job.epoch(0, rows(1))
    job.decided(1, rows(200))
    DeltaTable(job.path).alter.add_constraint({"small": "id < 100"})
    with pytest.raises(SchemaError, match="constraint small"):
        job.epoch(2, rows(3))
    assert job.rows() == rows(1).to_pylist()
    DeltaTable(job.path).alter.drop_constraint("small")
    job.epoch(2, rows(3))
    assert job.rows() == rows(1, 200, 3).to_pylist()


def test_a_constraint_before_the_decision_is_refused(tmp_path: Path) -> None:
    job = Job("delta", tmp_path)
    job.options.address.create(rows().schema, [])

    def constrained() -> None:
        DeltaTable(job.path).alter.add_constraint({"small": "id < 100"})

    job.refused("constraint small", rows(200), constrained)


# Planted.


def properties_are_not_looked_at(plant: Plant) -> None:
    plant(problems, "_NUMBERS", ())


def summaries_are_not_looked_at(plant: Plant) -> None:
    plant(Summary, "additional_properties", property(lambda self: {}))


damaged = test_a_property_that_is_damaged_after_the_decision_is_named_and_the_remedy_works
removed = test_a_mark_that_somebody_removes_from_the_properties_does_not_write_an_epoch_again


def signs_are_escaped(plant: Plant) -> None:
    plant(evolve, "written", json.dumps)


@pytest.mark.parametrize(
    ("bug", "check"),
    [
        (properties_are_not_looked_at, damaged),
        (summaries_are_not_looked_at, removed),
        (signs_are_escaped, check_signs),
    ],
)
def test_a_planted_defect_is_found(bug: Bug, check: Callable[[Path], None], tmp_path: Path) -> None:
    with planted(bug, by=(AbsError, AssertionError, pytest.fail.Exception)):
        check(tmp_path)
