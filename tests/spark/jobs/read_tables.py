"""Reads tables with Spark's own libraries; prints their rows as JSON.

python read_tables.py ASKED.json SCRATCH_FOLDER

ASKED.json is a list of kind, place (a folder, or a metadata file) and columns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.jobs.tend_lake import PACKAGES, session_with


def table(spark: SparkSession, number: int, kind: str, place: str) -> DataFrame:
    if kind == "delta":
        return spark.read.format("delta").load(place)
    if kind == "parquet":
        return spark.read.option("mergeSchema", "true").parquet(place)
    spark.sql(f"CALL seen.system.register_table('db.t{number}', '{place}')")
    return spark.table(f"seen.db.t{number}")


def main(asked: str, scratch: str) -> None:
    spark = session_with(
        {
            "spark.jars.packages": ",".join(PACKAGES[:2]),
            "spark.sql.catalog.seen": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.seen.type": "hadoop",
            "spark.sql.catalog.seen.warehouse": scratch,
            "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        }
    )
    spark.sql("CREATE NAMESPACE IF NOT EXISTS seen.db")
    found = []
    for number, (kind, place, columns) in enumerate(json.loads(Path(asked).read_text())):
        rows = table(spark, number, kind, place).selectExpr(*columns).collect()
        found.append([row.asDict() for row in rows])
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
