"""Prints as JSON what iceberg-spark makes of values as partitions, by tables that it writes.

python partition_values.py ASKED.json SCRATCH_FOLDER

ASKED.json has ``asked``: lists of Iceberg's type, a Parquet file of columns id and v, and transforms.
For each it prints an object: the transforms, each with the partition value of each row. Or it has
``read``: lists of a table's metadata file and filters. For each it prints lists: the ids that each
filter finds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.spark.jobs.tend_lake import PACKAGES, session_with

TIMES = ("year", "month", "day", "hour")


def by(spark: SparkSession, kind: str, transforms: Sequence[str], place: str) -> None:
    """Make a table of columns id and v that is partitioned by each transform of v."""
    iceberg = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    columns = [("id", "long"), ("v", kind.replace(" ", ""))]
    fields = [
        {"id": number, "name": name, "required": False, "type": of}
        for number, (name, of) in enumerate(columns, 1)
    ]
    schema = iceberg.SchemaParser.fromJson(
        json.dumps({"type": "struct", "schema-id": 0, "fields": fields})
    )
    spec = [
        {"name": f"p{n}", "transform": transform, "source-id": 2, "field-id": 1000 + n}
        for n, transform in enumerate(transforms)
    ]
    made = iceberg.PartitionSpecParser.fromJson(schema, json.dumps({"spec-id": 0, "fields": spec}))
    options = {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}
    tables = iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())
    tables.create(schema, made, options, place)


def text(frame: DataFrame, name: str, of: str) -> Column:
    """A value as ``partition_oracle.shown`` shows it."""
    kind, column = frame.schema[name].dataType.simpleString(), f.col(f"`{name}`")
    if of == "uuid":
        return f.replace(column.cast("string"), f.lit("-"), f.lit(""))
    if kind == "string":
        return f.lower(f.hex(f.encode(column, "UTF-8")))
    if kind == "binary":
        return f.lower(f.hex(column))
    if kind == "date":
        return f.unix_date(column).cast("string")
    if kind.startswith("timestamp"):
        return f.unix_micros(column.cast("timestamp")).cast("string")
    if kind in ("float", "double"):
        return column  # by Python's own text
    return column.cast("string")


def partitions(spark: SparkSession, place: str, kind: str) -> list[list[Any]]:
    """For each row, by id, its partition values."""
    frame = spark.read.format("iceberg").load(place).select("id", "_partition.*")
    names = frame.columns[1:]
    rows = (
        frame.select("id", *(text(frame, n, kind).alias(n) for n in names)).orderBy("id").collect()
    )
    return [
        [str(value).lower() if isinstance(value, float) else value for value in row[1:]]
        for row in rows
    ]


def values(spark: SparkSession, kind: str, rows: str, transforms: list[str], place: str) -> Any:
    # Iceberg takes one of these for a column at a time.
    times = [each for each in transforms if each in TIMES]
    groups = [[each for each in transforms if each not in TIMES], *([each] for each in times)]
    told: dict[str, Any] = {}
    for number, group in enumerate(groups):
        at = f"{place}/{number}"
        by(spark, kind, group, at)
        spark.read.parquet(rows).coalesce(1).write.format("iceberg").mode("append").save(at)
        columns = zip(*partitions(spark, at, kind), strict=True)
        told.update(zip(group, columns, strict=True))
    return told


def found(spark: SparkSession, place: str, filters: Sequence[str]) -> list[list[int]]:
    """For each filter the ids of a table at this metadata file."""
    rows = spark.read.format("iceberg").load(place)
    return [sorted(row.id for row in rows.where(each).select("id").collect()) for each in filters]


def main(asked: str, scratch: str) -> None:
    spark = session_with(
        {
            "spark.jars.packages": ",".join(PACKAGES[:2]),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
            "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        }
    )
    wanted = json.loads(Path(asked).read_text())
    told = [
        values(spark, kind, rows, transforms, f"{scratch}/{number}")
        for number, (kind, rows, transforms) in enumerate(wanted.get("asked", ()))
    ]
    told += [found(spark, place, filters) for place, filters in wanted.get("read", ())]
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
