"""Tables of the lake that Spark jobs write, as tests look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.parquet import ParquetFile
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import parse_transform

from tests.sinks.iceberg.harness import catalog_in
from tests.sinks.lake.tending import tend_delta, tend_iceberg


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
            for column, transform in (("at", "day"), ("id", "bucket[4]"), ("word", "truncate[6]")):
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
