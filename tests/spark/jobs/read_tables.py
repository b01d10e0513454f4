"""Reads tables with Spark's own libraries; prints their rows as JSON.

python read_tables.py ASKED.json SCRATCH_FOLDER

ASKED.json is a list of kind, place (a folder, or a metadata file) and columns, and perhaps how: ``to``
is a folder that gets the rows as Parquet (then none are printed), ``schema`` and ``options`` are for
Spark's reader. Functions of Iceberg are in ``seen.system``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.jobs.tend_lake import PACKAGES, session_with


def table(spark: SparkSession, kind: str, place: str, how: Mapping[str, Any]) -> DataFrame:
    reader = spark.read.option("mergeSchema", "true").options(**how.get("options", {}))
    if "schema" in how:
        reader = reader.schema(how["schema"])
    return reader.format(kind).load(place)


def main(asked: str, scratch: str) -> None:
    spark = session_with(
        {
            "spark.jars.packages": ",".join(PACKAGES[:2]),
            "spark.sql.catalog.seen": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.seen.type": "hadoop",
            "spark.sql.catalog.seen.warehouse": scratch,
            "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
            "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        }
    )
    found = []
    for kind, place, columns, *more in json.loads(Path(asked).read_text()):
        how = more[0] if more else {}
        frame = table(spark, kind, place, how).selectExpr(*columns)
        if "to" in how:
            frame.coalesce(1).write.parquet(how["to"])
        found.append([] if "to" in how else [row.asDict() for row in frame.collect()])
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
