"""What a commit adds is known before the decision, and nothing is inferred after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.types import (
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

from abs_clients.iceberg import entries
from abs_clients.iceberg.partitions import Partitions
from abs_core.errors import OptionError, RefusedError, RowError, SchemaError, TargetError
from abs_sinks.delta import DeltaOptions
from abs_sinks.iceberg import IcebergOptions
from abs_sinks.lake.committer import LakeCommitter
from abs_sinks.s3 import partitions
from abs_testing.engine import Run
from tests.planted import planted
from tests.sinks.lake.job import Job, batch

PLANTED = pytest.MonkeyPatch


@pytest.fixture
def iceberg(tmp_path: Path) -> Job:
    return Job("iceberg", tmp_path)


# Field ids.


def drop_and_add(job: Job) -> None:
    job.epoch(0, batch(id=[1], v=["personal"]))
    with job.table.update_schema() as schema:
        schema.delete_column("v")
    job.epoch(1, batch(id=[2], v=["new"]), schemachange="add")
    assert job.rows() == [{"id": 1, "v": None}, {"id": 2, "v": "new"}]


def rename_and_add(job: Job) -> None:
    job.epoch(0, batch(id=[1], v=["old"]))
    with job.table.update_schema() as schema:
        schema.rename_column("v", "w")
    job.epoch(1, batch(id=[2], v=["new"]), schemachange="add")
    assert job.rows() == [{"id": 1, "w": "old", "v": None}, {"id": 2, "w": None, "v": "new"}]


def names_swapped_after_the_decision(job: Job) -> None:
    job.epoch(0, batch(id=[1], a=["a1"], b=["b1"]))
    job.decided(1, batch(id=[2], a=["a2"], b=["b2"]))
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        with job.table.update_schema() as schema:
            schema.rename_column(old, new)
    job.epoch(2, batch(id=[3], a=["a3"], b=["b3"]))
    assert [(row["a"], row["b"]) for row in job.rows()] == [
        ("b1", "a1"),
        ("b2", "a2"),
        ("a3", "b3"),
    ]


def another_type_under_the_old_name(job: Job) -> None:
    job.epoch(0, batch(id=[1], v=["text"]))
    with job.table.update_schema() as schema:
        schema.delete_column("v")
    with job.table.update_schema() as schema:
        schema.add_column("v", LongType())
    job.epoch(1, batch(id=[2], v=[7]))
    assert job.rows() == [{"id": 1, "v": None}, {"id": 2, "v": 7}]


def nested_fields_renamed(job: Job) -> None:
    kind = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.map_(pa.string(), pa.int64())))])
    row = {"x": 1, "y": [[("k", 2)]]}
    job.epoch(0, batch(s=pa.array([row], kind)))
    with job.table.update_schema() as schema:
        schema.rename_column(("s", "x"), "z")
    assert job.rows() == [{"s": {"z": 1, "y": [[("k", 2)]]}}]


COLUMNS_CHANGE = [
    drop_and_add,
    rename_and_add,
    names_swapped_after_the_decision,
    another_type_under_the_old_name,
    nested_fields_renamed,
]


@pytest.mark.parametrize("change", COLUMNS_CHANGE)
def test_values_stay_with_their_column_whatever_becomes_of_names(
    change: Callable[[Job], None], iceberg: Job
) -> None:
    change(iceberg)


@pytest.mark.parametrize("change", COLUMNS_CHANGE)
def test_planted_files_without_ids_are_found(
    change: Callable[[Job], None], iceberg: Job, monkeypatch: PLANTED
) -> None:
    without = property(lambda self: None)
    assert without is not None
    monkeypatch.setattr(entries, "_ID", b"no id")
    with pytest.raises((AssertionError, SchemaError, ValueError, TargetError)):
        change(iceberg)


# Changes between task, decision and commit.


def test_a_change_after_the_decision_is_committed_as_if_it_came_later(iceberg: Job) -> None:
    kind = pa.int32()
    iceberg.epoch(0, batch(id=pa.array([1], kind), v=["a"], gone=["x"]))
    iceberg.decided(1, batch(id=pa.array([2], kind), v=["b"], gone=["y"]))
    with iceberg.table.update_schema(allow_incompatible_changes=True) as schema:
        schema.update_column("id", LongType())
        schema.delete_column("gone")
        schema.rename_column("v", "w")
        schema.add_column("more", StringType())
    iceberg.epoch(2, batch(id=[3], w=["c"]))
    assert [(row["id"], row["w"], row["more"]) for row in iceberg.rows()] == [
        (1, "a", None),
        (2, "b", None),
        (3, "c", None),
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda schema: schema.delete_column("v"), "v was dropped from the table"),
        (lambda schema: schema.update_column("v", required=True), "v must not be NULL"),
    ],
)
def test_a_change_between_task_and_decision_is_refused_before_the_decision(
    change: Callable[[Any], None], why: str, iceberg: Job
) -> None:
    def changed() -> None:
        with iceberg.table.update_schema(allow_incompatible_changes=True) as schema:
            change(schema)

    iceberg.refused(why, batch(id=[1], v=["a"]), changed)


def test_a_property_that_is_damaged_between_task_and_decision_is_refused(iceberg: Job) -> None:
    def changed() -> None:
        with iceberg.table.transaction() as change:
            change.set_properties({"commit.manifest.min-count-to-merge": "many"})

    iceberg.refused("to an integer", batch(id=[1]), changed)


def test_a_delta_table_that_is_laid_out_anew_before_the_decision_is_refused(tmp_path: Path) -> None:
    job = Job("delta", tmp_path)

    def changed() -> None:
        write_deltalake(
            job.path,
            pa.table({"id": [100], "day": ["d"]}),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=["day"],
        )

    job.refused("partitioned by nothing, and the table by day", batch(id=[1], day=["d"]), changed)


@pytest.mark.parametrize("dropped", [False, True])
def test_files_keep_the_specification_that_they_were_written_with(
    dropped: bool, iceberg: Job
) -> None:
    iceberg.options = replace(iceberg.options, partitionby=("p",))
    iceberg.epoch(0, batch(id=[1, 2], p=["a", None], q=[1, 2]))
    iceberg.decided(1, batch(id=[3, 4], p=["a", "b"], q=[1, 2]))
    iceberg.options = replace(iceberg.options, partitionby=())
    old = iceberg.table.metadata.default_spec_id
    with iceberg.table.update_spec() as spec:
        spec.remove_field("p")
        spec.add_identity("q")
    if dropped:
        with iceberg.table.update_schema() as schema:
            schema.delete_column("p")
    iceberg.epoch(2, batch(id=[5], q=[9]))
    table = iceberg.table
    snapshot = table.current_snapshot()
    assert snapshot is not None
    files = [
        (manifest.partition_spec_id, entry.data_file.record_count)
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    assert sorted(files) == [(old, 1)] * 4 + [(table.metadata.default_spec_id, 1)]
    if not dropped:  # pyiceberg cannot plan a scan over a specification without its column
        assert [row["id"] for row in iceberg.rows()] == [1, 2, 3, 4, 5]
        assert table.scan(row_filter="p == 'b'").to_arrow()["id"].to_pylist() == [4]
        assert table.scan(row_filter="q == 9").to_arrow()["id"].to_pylist() == [5]


def test_a_partition_field_that_the_table_has_forgotten_is_asked_for_by_name(
    iceberg: Job, monkeypatch: PLANTED
) -> None:
    """A catalog may remove a specification that no file has; the remedy is applied."""
    iceberg.options = replace(iceberg.options, partitionby=("p",))
    iceberg.decided(0, batch(id=[1], p=["a"]))
    iceberg.options = replace(iceberg.options, partitionby=())
    with iceberg.table.update_spec() as spec:
        spec.remove_field("p")
    kept = entries._spec
    with monkeypatch.context() as patch:
        patch.setattr(entries, "_spec", lambda wanted, table: kept(wanted, without_fields(table)))
        with pytest.raises(RefusedError, match="forgotten the partition fields p") as told:
            iceberg.epoch(1, batch(id=[2], p=["a"]))
    assert "add them to the table again" in str(told.value)
    with iceberg.table.update_spec() as spec:
        spec.add_identity("p")
    iceberg.epoch(1, batch(id=[2], p=["a"]))
    assert [row["id"] for row in iceberg.rows()] == [1, 2]


def without_fields(metadata: Any) -> Any:
    kept = [spec for spec in metadata.partition_specs if not spec.fields]
    return metadata.model_copy(update={"partition_specs": kept})


@pytest.mark.parametrize(("before", "after"), [("", "day"), ("day", ""), ("day", "n")])
def test_another_layout_of_a_delta_table_is_refused_and_the_remedy_works(
    before: str, after: str, tmp_path: Path
) -> None:
    job = Job("delta", tmp_path, **({"partitionby": before} if before else {}))

    def rows(*ids: int) -> pa.RecordBatch:
        return batch(id=list(ids), day=[f"d{i % 2}" for i in ids], n=list(ids))

    def laid_out(by: str) -> None:
        new = pa.table({"id": [100], "day": ["d9"], "n": [100]})
        by_it = [by] if by else []
        write_deltalake(
            job.path, new, mode="overwrite", schema_mode="overwrite", partition_by=by_it
        )

    job.epoch(0, rows(0))
    job.decided(1, rows(1, 2))
    laid_out(after)
    job.options = replace(job.options, partitionby=())
    with pytest.raises(
        RefusedError, match=f"partitioned by {before or 'nothing'}, and the table by"
    ):
        job.epoch(2, rows(5))
    assert DeltaTable(job.path).to_pyarrow_table()["id"].to_pylist() == [100]
    laid_out(before)
    job.epoch(2, rows(5))
    assert [row["id"] for row in job.rows()] == [1, 100, 2, 5]


def test_planted_a_layout_that_is_not_compared_is_found(tmp_path: Path) -> None:
    bug = LakeCommitter, "_check_layout", lambda *given: None
    with planted(bug, by=pytest.fail.Exception):
        test_another_layout_of_a_delta_table_is_refused_and_the_remedy_works("", "day", tmp_path)


# Partition values.

ALIKE = [None, "", partitions.NULL_FOLDER, "%5F_HIVE_DEFAULT_PARTITION__", "null"]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_null_is_told_from_every_text(kind: str, tmp_path: Path) -> None:
    job = Job(kind, tmp_path, partitionby="p")
    job.epoch(0, batch(id=list(range(len(ALIKE))), p=pa.array(ALIKE, pa.string())))
    found = {row["id"]: row["p"] for row in job.rows()}
    # In a partition of Delta an empty text is NULL, by its specification.
    assert found == {n: v if kind == "iceberg" else v or None for n, v in enumerate(ALIKE)}
    if kind == "iceberg":
        parts = [each["p"] for each in job.table.inspect.partitions()["partition"].to_pylist()]
        assert sorted(map(str, parts)) == sorted(map(str, ALIKE))
        assert job.table.scan(row_filter="p is null").to_arrow()["id"].to_pylist() == [0]


def test_planted_one_folder_for_two_values_is_found(tmp_path: Path) -> None:
    proper = Partitions.texts
    with planted((Partitions, "texts", lambda *given: [text or None for text in proper(*given)])):
        test_null_is_told_from_every_text("iceberg", tmp_path)


def test_planted_a_partition_inferred_from_bounds_is_found(tmp_path: Path) -> None:
    """As ``add_files`` does: under a metrics mode without bounds the value is NULL."""

    def inferred(self: Any, footer: Any, head: Any) -> str:
        return ""

    bug = entries.Entries, "entry", inferred
    with planted(bug, by=(AssertionError, TargetError, ValueError)):
        test_metrics_follow_the_tables_configuration_and_partitions_do_not("none", tmp_path)


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(3)", "full"])
def test_metrics_follow_the_tables_configuration_and_partitions_do_not(
    mode: str, tmp_path: Path
) -> None:
    job = Job("iceberg", tmp_path, partitionby="p")
    first = batch(id=[0], p=["a"], t=["x" * 20])
    job.epoch(0, first)
    with job.table.transaction() as change:
        change.set_properties({"write.metadata.metrics.default": mode})
    job.epoch(1, batch(id=[1, 2], p=["a", None], t=["abcdef", None]))
    assert job.table.scan(row_filter="p is null").to_arrow()["id"].to_pylist() == [2]
    files = [f for f in job.table.inspect.files().to_pylist() if f["partition"]["p"] == "a"]
    [new] = [f for f in files if f["readable_metrics"]["t"]["lower_bound"] != "x" * 16]
    told = new["readable_metrics"]["t"]
    assert told["value_count"] == (None if mode == "none" else 1)
    bounds = {"truncate(3)": ("abc", "abd"), "full": ("abcdef", "abcdef")}
    assert (told["lower_bound"], told["upper_bound"]) == bounds.get(mode, (None, None))


# Values, columns and paths.


def test_required_columns_identifiers_uuids_and_fixed_lengths_are_written(iceberg: Job) -> None:
    columns = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "u", UUIDType()),
        NestedField(3, "f", FixedType(3)),
        NestedField(4, "n", IntegerType()),
        identifier_field_ids=[1],
    )
    iceberg.harness.foreign.create_table("db.t", columns)
    text = "00112233-4455-6677-8899-AABBCCDDEEFF"
    iceberg.epoch(0, batch(id=[1, 2], u=[text, None], f=[b"abc", None]))
    iceberg.epoch(1, batch(id=[3], u=[bytes(range(16))], f=[b"xyz"]))
    rows = iceberg.rows()
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert [row["f"] for row in rows] == [b"abc", None, b"xyz"]
    assert [row["u"] and row["u"].hex for row in rows] == [
        "00112233445566778899aabbccddeeff",
        None,
        bytes(range(16)).hex(),
    ]
    for bad, why in (
        (
            batch(id=pa.array([None], pa.int64()), u=[text], f=[b"abc"]),
            '"id": 1 of 1 values are NULL',
        ),
        (batch(id=[4], u=["no"], f=[b"abc"]), '"u": 1 of 1 values are no UUIDs'),
        (batch(id=[4], u=[text], f=[b"ab"]), '"f": 1 of 1 values do not have 3 bytes'),
    ):
        with pytest.raises(RowError, match=why):
            iceberg.epoch(2, bad)


FAR = pa.array([2_932_897], pa.int32()).cast(pa.date32())
EARLY = pa.array([-62_135_596_800_000_001]).cast(pa.timestamp("us", "UTC"))
NOT_TEXT = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (FAR, "v"),
        (EARLY, "v"),
        (NOT_TEXT, "v"),
        (pa.StructArray.from_arrays([FAR], ["x"]), "v.x"),
        (pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), NOT_TEXT), "v[]"),
        (pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), FAR, NOT_TEXT), "v.key"),
    ],
)
def test_a_value_that_no_table_holds_is_refused_by_row_in_the_task(
    kind: str, value: pa.Array, path: str, tmp_path: Path
) -> None:
    job = Job(kind, tmp_path)
    column = pa.chunked_array([pa.nulls(1, value.type), value]).combine_chunks()
    with pytest.raises(RowError) as refused:
        job.epoch(0, batch(id=[1, 2], v=column))
    assert f'Column "{path}": 1 of 2 values' in str(refused.value)
    assert "row 1 of the task (id=2)" in str(refused.value)
    job.epoch(0, batch(id=[1], v=pa.nulls(1, value.type)))
    assert job.rows() == [{"id": 1, "v": None}]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_text_whose_bound_has_no_next_character_is_written(kind: str, tmp_path: Path) -> None:
    job = Job(kind, tmp_path)
    job.epoch(0, batch(v=["a" * 15 + "\ud7ff" + "bc"]))
    assert job.rows() == [{"v": "a" * 15 + "\ud7ff" + "bc"}]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_epoch_of_partition_columns_alone_has_all_its_rows(kind: str, tmp_path: Path) -> None:
    job = Job(kind, tmp_path, partitionby="p")
    job.epoch(0, batch(id=[1], p=["a"]))
    job.options = replace(job.options, partitionby=())
    job.epoch(1, batch(p=["a", "a", "b"]))
    assert [(row["id"], row["p"]) for row in job.rows()] == [
        (1, "a"),
        (None, "a"),
        (None, "a"),
        (None, "b"),
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_input_without_a_column_of_the_table_is_refused(kind: str, tmp_path: Path) -> None:
    job = Job(kind, tmp_path)
    job.epoch(0, batch(id=[1]))
    with pytest.raises(SchemaError, match="no column in common"):
        job.epoch(1, batch(x=[1, 2, 3]), schemachange="ignore")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_is_not_made_with_all_columns_as_partitions(kind: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="names every column"):
        Job(kind, tmp_path, partitionby="p").epoch(0, batch(p=["a"]))


VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), metadata={b"variant": b"true"}),
        pa.field("metadata", pa.binary()),
    ]
)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.nulls(1), "v has no type|has no type for a column: .* Field: v"),
        (pa.nulls(1, pa.list_(pa.null())), "v has no type|has no type for a column: .* Field: v"),
        (pa.nulls(1, VARIANT), "v cannot be written: VARIANT"),
        (pa.array([{}], pa.struct([])), "v has a struct without fields"),
    ],
)
def test_a_type_that_no_table_keeps_is_refused_by_name_and_no_table_is_made(
    kind: str, column: pa.Array, why: str, tmp_path: Path
) -> None:
    job = Job(kind, tmp_path)
    with pytest.raises(SchemaError, match=why):
        job.epoch(0, batch(id=[1], v=column))
    assert job.options.address.load() is None


def test_clocks_in_maps_alone_are_refused_for_delta_and_no_table_is_made(tmp_path: Path) -> None:
    job = Job("delta", tmp_path)
    column = pa.nulls(1, pa.map_(pa.string(), pa.timestamp("us")))
    with pytest.raises(SchemaError, match="TIMESTAMP_NTZ in maps alone"):
        job.epoch(0, batch(v=column))
    assert job.options.address.load() is None
    job.epoch(0, batch(v=column, at=pa.nulls(1, pa.timestamp("us"))))
    assert job.rows() == [{"v": None, "at": None}]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_folder_name_that_no_disk_takes_is_refused_in_the_task(kind: str, tmp_path: Path) -> None:
    job = Job(kind, tmp_path, partitionby="p")
    with pytest.raises(RowError, match=r"1 of 2 rows .* longer than 255 bytes"):
        job.epoch(0, batch(id=[1, 2], p=["ok", "é" * 130]))


def test_a_path_with_an_escape_is_refused() -> None:
    with pytest.raises(OptionError, match="a path without %20"):
        DeltaOptions.parse({"path": "s3://bucket/per%20cent/t"})


@pytest.mark.parametrize("sign", ["#", "?"])
def test_a_warehouse_that_the_library_cuts_off_is_refused(sign: str, tmp_path: Path) -> None:
    given = {"table": "db.t", "catalog.type": "sql", "catalog.warehouse": f"file:///w{sign}x"}
    with pytest.raises(OptionError, match="at which pyiceberg cuts it off"):
        IcebergOptions.parse(given)


@pytest.mark.parametrize("name", ["a#b", "q?x", "100%", "a b"])
def test_a_folder_with_signs_holds_log_and_files(name: str, tmp_path: Path) -> None:
    job = Job("delta", tmp_path / name)
    job.epoch(0, batch(id=[1]))
    job.epoch(1, batch(id=[2]))
    assert [row["id"] for row in job.rows()] == [1, 2]
    assert (tmp_path / name / "t" / "_delta_log").is_dir()


# After the decision.


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_error_that_nobody_knows_is_told_at_once_and_the_decision_stays(
    kind: str, tmp_path: Path, monkeypatch: PLANTED
) -> None:
    job = Job(kind, tmp_path)
    job.epoch(0, batch(id=[1]))

    def defect(*given: Any, **more: Any) -> Any:
        raise OverflowError("date value out of range")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", defect)
        patch.setattr(Transaction, "commit_transaction", defect)
        with pytest.raises(TargetError, match=r"An unexpected error.*OverflowError") as told:
            job.epoch(1, batch(id=[2]))
    assert not told.value.retryable
    assert "in-doubt accept-loss job 1" in str(told.value)
    job.epoch(2, batch(id=[3]))
    assert [row["id"] for row in job.rows()] == [1, 2, 3]


# Handles, which outlive a release.

HANDLE = Path(__file__).parents[2] / "golden" / "formats" / "lake-handle.json"
"""What a handle's ``extra`` tells; a release that told less left out the location and ``required``."""


def made_by(job: Job, number: int, rows: pa.RecordBatch, *left_out: str) -> dict[str, str]:
    """One epoch, whose handles lack these keys; what the task's handle told."""
    run = Run(job.sink(job.options, rows.schema), "job")
    attempt = run.attempt(number, 0)
    attempt.writer.write(rows)
    attempt._rows += rows.num_rows
    wrote = attempt.pre_commit()
    assert wrote.committable is not None
    extra = dict(wrote.committable.extra)
    kept = tuple(sorted((key, extra[key]) for key in extra if key not in left_out))
    run.commit(number, [replace(wrote, committable=replace(wrote.committable, extra=kept))])
    return extra


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_handle_tells_what_the_golden_file_has_and_one_of_before_is_committed(
    kind: str, tmp_path: Path
) -> None:
    job = Job(kind, tmp_path)
    schema = pa.schema([("id", pa.int64()), pa.field("text", pa.string(), nullable=False)])
    if kind == "delta":
        write_deltalake(job.path, pa.table({"id": [0], "text": ["t0"]}, schema))
    else:
        job.harness.foreign.create_table("db.t", schema)
        job.table.append(pa.table({"id": [0], "text": ["t0"]}, schema))
    golden = json.loads(HANDLE.read_text())[kind]
    extra = made_by(job, 0, batch(id=[1], text=["t1"]))
    assert sorted(extra) == sorted(golden)
    assert extra["required"] == golden["required"]
    made_by(job, 1, batch(id=[2], text=["t2"]), "required", "location")
    assert [row["id"] for row in job.rows()] == [0, 1, 2]
