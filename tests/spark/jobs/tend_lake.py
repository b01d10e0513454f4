"""Compacts a table and lets its old states expire, by Spark's own libraries; at the end, reads it.

python tend_lake.py delta FOLDER STOP_FILE
python tend_lake.py iceberg REST_CATALOG_URL STOP_FILE

It goes on until the file is there, then prints how often it has done so, how often it lost a race, and
the ids that it finds. The Iceberg table is ``db.t``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.2.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
)
EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)
ICEBERG = (
    "CALL rest.system.rewrite_data_files(table => 'db.t', options => map('min-input-files', '2'))",
    "CALL rest.system.expire_snapshots('db.t', TIMESTAMP '9999-12-31 00:00:00', 3)",
    "CALL rest.system.remove_orphan_files('db.t')",
)
RACES = ("Concurrent", "CONCURRENT", "CommitFailed", "ValidationException")


def session(place: str) -> SparkSession:
    settings = {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.sql.extensions": ",".join(EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.rest": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.rest.type": "rest",
        "spark.sql.catalog.rest.uri": place,
        "spark.sql.catalog.rest.cache-enabled": "false",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(kind: str, place: str, stop: str) -> None:
    spark = session(place)
    spark.sparkContext.setLogLevel("ERROR")
    delta = f"delta.`{place}`"
    acts = {
        "delta": (f"OPTIMIZE {delta}", f"VACUUM {delta} LITE RETAIN 0 HOURS"),
        "iceberg": ICEBERG,
    }[kind]
    done = lost = 0
    while not Path(stop).exists():
        try:
            for act in acts:
                spark.sql(act).collect()
        except Exception as error:
            if not any(race in str(error) for race in RACES):
                raise
            lost += 1
        else:
            done += 1
        time.sleep(0.5)
    table = spark.read.format("delta").load(place) if kind == "delta" else spark.table("rest.db.t")
    ids = [row[0] for row in table.select("id").collect()]
    print(json.dumps({"done": done, "lost": lost, "ids": ids}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
