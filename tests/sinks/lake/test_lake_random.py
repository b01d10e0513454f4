"""Random columns, values, layouts and changes of a table: each reader sees what was written.

The model knows columns by themselves, not by name: a value stays with its column whatever that is
called, and an added column is NULL in older rows. What a table does not hold is refused before
anything of the epoch is decided. Readers are the two libraries and DuckDB, and in the campaign Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import ParquetFile
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DecimalType, DoubleType, LongType

from abs_clients.iceberg import entries
from abs_clients.iceberg.partitions import Partitions
from abs_core.errors import RowError
from abs_sinks.lake import sink as lake_sink
from tests.kit.random_values import PARTITIONS, PLAIN, SCALARS, Values, shown
from tests.planted import Bug, Plant, planted
from tests.sample import seed
from tests.sinks.lake.job import Job
from tests.sinks.lake.test_lake_readers import duckdb_at
from tests.spark.lake_spark import ask_with_file

MODES = ["none", "counts", "truncate(2)", "truncate(16)", "full"]


class Column:
    """A column of the table, under whatever name, and the values that rows have in it."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name = name
        self.kind = kind
        self.values: dict[int, Any] = {}
        self.partition = False


class World:
    """A table and what must be in it."""

    def __init__(self, kind: str, folder: Path, number: int) -> None:
        self.random = Random(f"{kind} {number} {seed()}")
        self.values = Values(self.random)
        self.number = self.epochs = self.rows = 0
        self.columns = [
            Column("id", pa.int64()),
            Column("day", pa.date32()),
            *(self.new() for _ in range(self.random.randint(1, 6))),
        ]
        by = []
        if self.random.random() < 0.7:
            by = [
                Column(f"p{n}", self.random.choice(PARTITIONS))
                for n in range(self.random.randint(1, 2))
            ]
            self.columns += by
        for column in by:
            column.partition = True
        self.job = Job(
            kind, folder, **({"partitionby": ",".join(c.name for c in by)} if by else {})
        )
        self.epoch()
        if kind == "iceberg":
            with self.job.table.transaction() as change:
                change.set_properties(
                    {
                        "write.metadata.metrics.default": self.random.choice(MODES),
                        "commit.manifest-merge.enabled": self.random.choice(["true", "false"]),
                        "commit.manifest.min-count-to-merge": "2",
                    }
                )

    def new(self) -> Column:
        self.number = getattr(self, "number", 0) + 1
        return Column(f"c{self.number}", self.values.kind())

    def batch(self, size: int) -> pa.RecordBatch:
        ids = range(self.rows, self.rows + size)
        made = {}
        for column in self.columns:
            kind = column.kind
            values = list(ids) if column.name == "id" else [self.values.value(kind) for _ in ids]
            made[column.name] = pa.array(values, kind)
            for n, value in zip(ids, made[column.name].to_pylist(), strict=True):
                # In a partition of Delta an empty text is NULL, by its specification.
                empty = self.job_is_delta and column.partition and value == ""
                column.values[n] = None if empty else value
        self.rows += size
        return pa.record_batch(made)

    @property
    def job_is_delta(self) -> bool:
        return not hasattr(self, "job") or self.job.kind == "delta"

    def epoch(self, change: Callable[[], None] | None = None) -> None:
        """One epoch; with a change the table changes between its decision and its commit."""
        rows = self.batch(self.random.randint(5, 40))
        if change is None:
            self.job.epoch(self.epochs, rows)
        else:
            self.job.decided(self.epochs, rows)
            change()
        self.epochs += 1

    def refused(self) -> None:
        """An epoch with a value that no table holds."""
        far = pa.array([2_932_897], pa.int32()).cast(pa.date32())
        columns = {c.name: pa.nulls(1, c.kind) for c in self.columns} | {"id": pa.array([-1])}
        days = [c.name for c in self.columns if c.kind == pa.date32()]
        if days:
            with pytest.raises(RowError, match="outside the years"):
                self.job.epoch(self.epochs, pa.record_batch(columns | {days[0]: far}))

    def expected(self) -> list[str]:
        return [
            shown({c.name: self.shown_alike(c, c.values.get(n)) for c in self.columns})
            for n in range(self.rows)
        ]

    def shown_alike(self, column: Column, value: Any) -> Any:
        """pyiceberg shows a NULL map, or list of structs, as an empty one; others tell them apart."""
        kind = str(column.kind)
        if self.job.kind == "iceberg" and (
            "map<" in kind or ("list<" in kind and "struct<" in kind)
        ):
            return repr(value).replace("None", "[]")
        return value

    def seen(self) -> list[str]:
        rows = self.job.options.address.read().read_all().to_pylist()
        by_name = {column.name: column for column in self.columns}
        return [
            shown({name: self.shown_alike(by_name[name], value) for name, value in row.items()})
            for row in sorted(rows, key=lambda row: int(row["id"]))
        ]

    def plain(self) -> dict[str, str]:
        """What any engine shows alike of each column, as SQL: numbers, text, or whether it is NULL."""
        return {
            c.name: f"{c.name}" if c.kind in PLAIN else f"{c.name} IS NULL" for c in self.columns
        }

    def expected_plain(self) -> list[str]:
        def of(column: Column, value: Any) -> Any:
            return value if column.kind in PLAIN else value is None

        rows = ({c.name: of(c, c.values.get(n)) for c in self.columns} for n in range(self.rows))
        return [shown(row) for row in rows]

    def checked(self, when: str) -> None:
        assert self.seen() == self.expected(), when

    def partitions_checked(self) -> None:
        """A filter on a partition goes by the metadata alone."""
        if self.job.kind == "iceberg":
            assert wrong_partitions(self.job.table) == []
        for column in self.columns:
            if self.job.kind == "iceberg" and column.partition:
                found = self.job.table.scan(row_filter=f"{column.name} is null").to_arrow()
                nulls = [n for n in range(self.rows) if column.values.get(n) is None]
                assert sorted(found["id"].to_pylist()) == nulls, column.name


def wrong_partitions(table: Table) -> list[str]:
    """Files with a row that is not in its partition, by transforms of single values."""
    wrong = []
    for task in table.scan().plan_files():
        rows = ParquetFile(task.file.file_path.removeprefix("file://")).read()
        names = {int(field.metadata[b"PARQUET:field_id"]): field.name for field in rows.schema}
        for place, field in enumerate(table.specs()[task.file.spec_id].fields):
            column = rows[names[field.source_id]]
            kind = pyarrow_to_schema(pa.schema([rows.schema.field(names[field.source_id])]))
            transform = field.transform.transform(kind.fields[0].field_type)
            value = task.file.partition[place]
            made = {
                shown(partition_record_value(field, transform(one), kind))
                for one in column.to_pylist()
            }
            if made != {shown(value)}:
                wrong.append(f"{field.name} is {value}, of rows with {made}")
    return wrong


# What others do to an Iceberg table.


def drop(world: World) -> None:
    free = [c for c in world.columns if c.name != "id" and not c.partition]
    if not free:
        return
    gone = world.random.choice(free)
    with world.job.table.update_schema() as schema:
        schema.delete_column(gone.name)
    world.columns.remove(gone)


def drop_and_add(world: World) -> None:
    """Under the old name, of another type perhaps."""
    free = [c for c in world.columns if c.name != "id" and not c.partition]
    if not free:
        return
    old = world.random.choice(free)
    new = Column(old.name, world.values.kind())
    with world.job.table.update_schema() as schema:
        schema.delete_column(old.name)
    with world.job.table.update_schema() as schema:
        schema.union_by_name(pa.schema([(new.name, new.kind)]))
    world.columns.remove(old)
    world.columns.append(new)


def rename(world: World) -> None:
    column = world.random.choice([c for c in world.columns if c.name != "id"])
    new = f"r{world.random.randint(0, 10**6)}"
    with world.job.table.update_schema() as schema:
        schema.rename_column(column.name, new)
    column.name = new


def swap(world: World) -> None:
    # The library lets a partition field and a column of another name have no common name.
    free = [c for c in world.columns if c.name != "id" and not c.partition]
    if len(free) < 2:
        return
    one, other = world.random.sample(free, 2)
    first, second = one.name, other.name
    for old, new in ((first, "x"), (second, first), ("x", second)):
        with world.job.table.update_schema() as schema:
            schema.rename_column(old, new)
    one.name, other.name = second, first


def promote(world: World) -> None:
    wider = {
        pa.int32(): (LongType(), pa.int64()),
        pa.float32(): (DoubleType(), pa.float64()),
        pa.decimal128(9, 2): (DecimalType(20, 2), pa.decimal128(20, 2)),
    }
    for column in world.columns:
        if column.kind in wider and not column.partition:
            there, column.kind = wider[column.kind]
            with world.job.table.update_schema() as schema:
                schema.update_column(column.name, field_type=there)
            return


def add_partition(world: World) -> None:
    free = [c for c in world.columns if c.kind in SCALARS and not c.partition and c.name != "id"]
    if free:
        column = world.random.choice(free)
        transform = parse_transform(world.random.choice(transforms_of(column.kind)))
        column.partition = True
        with suppress(ValueError), world.job.table.update_spec() as spec:  # its name was another's
            spec.add_field(column.name, transform, f"by {world.random.randint(0, 10**6)}")


def transforms_of(kind: pa.DataType) -> list[str]:
    """Those of Iceberg that hold each of ``Values``."""
    types = pa.types
    if types.is_timestamp(kind) and kind.tz:
        return ["bucket[3]", "year", "month", "day", "hour"]
    if types.is_timestamp(kind) or types.is_date(kind):
        return ["identity", "bucket[3]", "year", "month", "day"]
    if types.is_floating(kind) or types.is_boolean(kind):
        return ["identity"]
    if types.is_decimal(kind):
        return ["identity", "bucket[3]", "truncate[1]"]
    return ["identity", "bucket[3]", "truncate[4]"]


def remove_partition(world: World) -> None:
    fields = world.job.table.spec().fields
    if fields:
        field = world.random.choice(fields)
        with world.job.table.update_spec() as spec:
            spec.remove_field(field.name)


def require(world: World) -> None:
    with world.job.table.update_schema(allow_incompatible_changes=True) as schema:
        schema.update_column("id", required=True)


CHANGES = [
    *(drop, drop_and_add, rename, swap, promote, add_partition, remove_partition, require),
]


def lived(kind: str, folder: Path, number: int, epochs: int = 5) -> World:
    """A table after some epochs and changes; it is looked at after each."""
    world = World(kind, folder, number)
    world.job.options = replace(world.job.options, partitionby=())
    world.checked("after the first epoch")
    for _ in range(epochs):
        change = world.random.choice(CHANGES) if kind == "iceberg" else None
        if change is None:
            world.epoch()
        elif world.random.random() < 0.5:
            world.epoch(partial(change, world))
            world.epoch()
        else:
            change(world)
            world.epoch()
        world.checked(f"after {change.__name__ if change else 'an epoch'}")
    world.refused()
    world.epoch()
    world.checked("after an epoch that was refused")
    world.partitions_checked()
    return world


def place(world: World) -> str:
    if world.job.kind == "delta":
        return world.job.path
    return str(world.job.table.metadata_location)


FROZEN, MORE = range(2), range(2, 60)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    "number",
    [*FROZEN, *(pytest.param(n, marks=pytest.mark.campaign) for n in MORE)],
)
def test_each_library_reads_what_was_written(kind: str, number: int, tmp_path: Path) -> None:
    lived(kind, tmp_path, number)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_duckdb_reads_what_was_written(kind: str, tmp_path: Path) -> None:
    world = lived(kind, tmp_path, 100, epochs=3)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in world.plain().items())
    found = duckdb_at(kind, place(world), columns)
    assert [shown(row) for row in found] == world.expected_plain()


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_sparks_own_libraries_read_what_was_written(tmp_path: Path) -> None:
    """Iceberg takes identity partitions from the metadata, Delta always."""
    kinds = [("delta", n) for n in range(200, 206)] + [("iceberg", n) for n in range(200, 212)]
    worlds = [lived(kind, tmp_path / f"{kind}{n}", n) for kind, n in kinds]
    copies = [tmp_path / f"copy{number}" for number in range(len(worlds))]
    asked = [
        [w.job.kind, place(w), ["*"], {"to": str(copy)}]
        for w, copy in zip(worlds, copies, strict=True)
    ]
    ask_with_file("read_tables.py", tmp_path, asked)
    for (kind, number), world, copy in zip(kinds, worlds, copies, strict=True):
        rows = sorted(pq.read_table(copy).to_pylist(), key=lambda row: int(row["id"]))
        due = [{c.name: c.values.get(n) for c in world.columns} for n in range(world.rows)]
        assert list(map(shown, rows)) == list(map(shown, due)), f"{kind} {number}"


# Planted: each root of what was wrong.


def without_ids(plant: Plant) -> None:
    plant(entries, "_ID", b"no id")


def partitions_from_bounds(plant: Plant) -> None:
    plant(entries.Entries, "entry", lambda *given: "")


def one_folder_for_two_values(plant: Plant) -> None:
    proper = Partitions.texts
    plant(Partitions, "texts", lambda *given: [text or None for text in proper(*given)])


def values_are_not_checked(plant: Plant) -> None:
    plant(lake_sink, "check_values", lambda *given: None)


FOUND_IN: dict[Bug, int] = {
    without_ids: 0,
    partitions_from_bounds: 5,
    one_folder_for_two_values: 5,
    values_are_not_checked: 3,
}
"""A table in which each is found."""


@pytest.mark.parametrize("bug", FOUND_IN)
def test_a_planted_defect_is_found(bug: Bug, tmp_path: Path) -> None:
    # By a difference, by a reader's own error, or by a refusal that does not come.
    with planted(bug, by=(Exception, pytest.fail.Exception)):
        lived("iceberg", tmp_path, FOUND_IN[bug], epochs=2)
