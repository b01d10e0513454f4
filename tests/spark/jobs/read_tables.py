"""Reads tables with Spark's own libraries; prints their rows as JSON.

python read_tables.py ASKED.json SCRATCH_FOLDER

ASKED.json is a list of kind, place (a folder, or a metadata file) and columns. Functions of Iceberg are
in ``seen.system``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.jobs.tend_lake import PACKAGES, session_with


def table(spark: SparkSession, kind: str, place: str) -> DataFrame:
    return spark.read.option("mergeSchema", "true").format(kind).load(place)


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
    found = []
    for kind, place, columns in json.loads(Path(asked).read_text()):
        rows = table(spark, kind, place).selectExpr(*columns).collect()
        found.append([row.asDict() for row in rows])
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
