"""Tables of the lake that Spark jobs write, as tests look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.parquet import ParquetFile
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import parse_transform

from tests.sinks.iceberg.harness import catalog_in
from tests.sinks.lake.tending import tend_delta, tend_iceberg
from tests.spark.lake_spark import ask_with_file
from tests.spark.world import ARROW, World

HIDDEN = (("at", "day"), ("id", "bucket[4]"), ("word", "truncate[6]"))
"""Columns and transforms of a table with hidden partitions."""
IN_SPARK = (
    "system.days(at)",
    "system.bucket(4, id)",
    "system.truncate(6, word)",
)
"""The same by iceberg-spark's functions."""


def put_files_around_1970(world: World, files: int, rows: int) -> None:
    """Rows of the hours before and after the year 1970 began."""
    begin = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(hours=files * rows // 2)
    for number in range(files):
        ids = range(number * 1000, number * 1000 + rows)
        hours = range(number * rows, (number + 1) * rows)
        moments = [begin + timedelta(hours=hour) for hour in hours]
        words = [f"word {number}" for number in ids]
        world.put(number, pa.table([pa.array(ids), words, pa.array(moments, ARROW[2].type)], ARROW))


class Lake:
    """A table of one kind in the test's folder.

    Args:
        kind: delta, iceberg, or hidden: an Iceberg table with hidden partitions.
        catalog: of an Iceberg table; else one in SQLite.
    """

    def __init__(self, kind: str, folder: Path, catalog: Mapping[str, str] | None = None) -> None:
        self.hidden = kind == "hidden"
        self.kind = "iceberg" if self.hidden else kind
        self.folder = folder / "lake"
        self.given = {"createtable": "true"}
        if kind == "delta":
            self.given["path"] = str(self.folder)
        else:
            self.catalog = dict(catalog or catalog_in(self.folder))
            load_catalog("default", **self.catalog).create_namespace_if_not_exists("db")
            self.given |= {f"catalog.{name}": value for name, value in self.catalog.items()}
            self.given["table"] = "db.t"
        if self.hidden:
            self._make_hidden()

    @property
    def format(self) -> str:
        return f"abs-{self.kind}"

    @property
    def options(self) -> dict[str, str]:
        return self.given if self.hidden else {**self.given, "partitionby": "word"}

    def _make_hidden(self) -> None:
        columns = pa.schema(
            [("id", pa.int64()), ("word", pa.string()), ("at", pa.timestamp("us", "UTC"))]
        )
        making = load_catalog("default", **self.catalog).create_table_transaction("db.t", columns)
        with making, making.update_spec() as spec:
            for column, transform in HIDDEN:
                spec.add_field(column, parse_transform(transform), f"{column} hidden")

    def wrong_partitions(self) -> list[str]:
        """Files with a row that is in another partition, by pyiceberg's transforms of single values."""
        if not self.hidden:
            return []
        table = load_catalog("default", **self.catalog).load_table("db.t")
        schema, wrong = table.schema(), []
        for task in table.scan().plan_files():
            rows = ParquetFile(task.file.file_path.removeprefix("file://")).read().to_pylist()
            for place, field in enumerate(table.spec().fields):
                transform = field.transform.transform(schema.find_type(field.source_id))
                name, value = schema.find_column_name(field.source_id), task.file.partition[place]
                if {transform(row[name]) for row in rows} != {value}:
                    wrong.append(f"{field.name} = {value}: {task.file.file_path}")
        return wrong

    def wrong_in_spark(self, folder: Path) -> tuple[Counter[int], list[int]]:
        """What iceberg-spark sees: the ids, and those of them that are not in its own partition.

        Args:
            folder: of the question and of Spark's scratch.
        """
        folder.mkdir(parents=True, exist_ok=True)
        fields = (f"_partition.`{column} hidden`" for column, _ in HIDDEN)
        same = " AND ".join(
            f"{field} <=> seen.{of_spark}" for field, of_spark in zip(fields, IN_SPARK, strict=True)
        )
        asked = [["iceberg", self.place, ["id", f"{same} AS same"]]]
        [rows] = ask_with_file("read_tables.py", folder, asked)
        return Counter(row["id"] for row in rows), [row["id"] for row in rows if not row["same"]]

    def read(self) -> pa.Table:
        """What a foreign reader sees."""
        if self.kind == "delta":
            return DeltaTable(str(self.folder)).to_pyarrow_table()
        return load_catalog("default", **self.catalog).load_table("db.t").scan().to_arrow()

    def ids(self) -> Counter[int]:
        return Counter(self.read()["id"].to_pylist())

    def tend(self) -> None:
        """Compact it and let old states expire, where it is there."""
        if self.kind == "delta":
            if DeltaTable.is_deltatable(str(self.folder)):
                tend_delta(str(self.folder))
            return
        catalog = load_catalog("default", **self.catalog)
        if catalog.table_exists("db.t"):
            tend_iceberg(catalog.load_table("db.t"))

    @property
    def place(self) -> str:
        """Of the table, for a reader that knows no catalog."""
        if self.kind == "delta":
            return str(self.folder)
        return load_catalog("default", **self.catalog).load_table("db.t").metadata_location

    def staged(self) -> list[str]:
        folder = self.folder
        if self.kind == "iceberg":
            catalog = load_catalog("default", **self.catalog)
            folder = Path(catalog.load_table("db.t").location().removeprefix("file://"))
        return [path.name for path in folder.rglob("_abs/staged/*")]
