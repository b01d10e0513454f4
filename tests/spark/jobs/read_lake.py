"""Reads a Delta table and an Iceberg table with Spark's own libraries; prints both as JSON.

python read_lake.py DELTA_FOLDER ICEBERG_METADATA_FILE SCRATCH_FOLDER
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame

from tests.spark.jobs.tend_lake import PACKAGES, session_with


def rows(frame: DataFrame) -> list[list[object]]:
    return sorted(([row[0], row[1]] for row in frame.collect()), key=str)


def main(delta: str, iceberg: str, scratch: str) -> None:
    settings = {
        "spark.jars.packages": ",".join(PACKAGES[:2]),
        "spark.sql.catalog.seen": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.seen.type": "hadoop",
        "spark.sql.catalog.seen.warehouse": scratch,
    }
    spark = session_with(settings)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS seen.db")
    spark.sql(f"CALL seen.system.register_table('db.t', '{iceberg}')")
    files = spark.table("seen.db.t.files")
    told = {
        "delta": rows(spark.read.format("delta").load(delta)),
        "skipped": rows(spark.read.format("delta").load(delta).where("id >= 5")),
        "history": spark.sql(f"DESCRIBE HISTORY delta.`{delta}`").count(),
        "iceberg": rows(spark.table("seen.db.t")),
        "of one partition": rows(spark.table("seen.db.t").where("value = 'a'")),
        "files": files.count(),
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
