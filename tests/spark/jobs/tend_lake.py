"""Compacts a table and lets its old states expire, by Spark's own libraries; at the end, reads it.

python tend_lake.py delta PATH FOLDER [ENDPOINT_OF_S3]
python tend_lake.py iceberg SQLITE_FILE FOLDER [ENDPOINT_OF_S3]

It goes on until FOLDER has a file ``enough``; then it prints how often it has done so, how often it
lost a race, and the ids that it finds. A file ``clean`` asks for the strictest cleaning that there is,
once: it is removed afterwards. The Iceberg table is ``db.t`` of pyiceberg's SQL catalog ``default``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.2.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
    "org.apache.hadoop:hadoop-aws:3.4.2",
    "software.amazon.awssdk:s3-transfer-manager:2.44.4",
    "org.xerial:sqlite-jdbc:3.51.0.0",
)
IN_THE_BUNDLE = (
    "software.amazon.awssdk:bundle",
    "software.amazon.awssdk:s3",
    "software.amazon.awssdk:s[!3]*",
    "software.amazon.awssdk:[!s]*",
)
"""All of the SDK but the transfer manager: Iceberg's bundle has it."""
IN_SPARK = "org.slf4j:slf4j-api"
"""What Spark itself has; resolvers find it in one of their caches, and not its jar."""
EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)
ICEBERG = (
    "rewrite_data_files(table => 'db.t', options => map('min-input-files', '2'))",
    "expire_snapshots('db.t', TIMESTAMP '9999-12-31 00:00:00', 3)",
    "remove_orphan_files('db.t')",
)
RACES = ("Concurrent", "CONCURRENT", "CommitFailed", "ValidationException")


def session(place: str, endpoint: str) -> SparkSession:
    settings = {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.excludes": ",".join((*IN_THE_BUNDLE, IN_SPARK)),
        "spark.sql.catalog.default": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.default.type": "jdbc",
        "spark.sql.catalog.default.uri": f"jdbc:sqlite:{place}",
        "spark.sql.catalog.default.warehouse": "/nowhere",
        "spark.sql.catalog.default.cache-enabled": "false",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # Else each look at a Delta table is 50 tasks, and each VACUUM as many as it likes.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    if endpoint:
        settings |= {
            "spark.sql.catalog.default.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "spark.sql.catalog.default.client.region": "us-east-1",
            "spark.sql.catalog.default.s3.endpoint": endpoint,
            "spark.sql.catalog.default.s3.path-style-access": "true",
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
    return session_with(settings)


def session_with(settings: Mapping[str, str]) -> SparkSession:
    """One that knows both kinds of tables."""
    both = {
        "spark.sql.extensions": ",".join(EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.excludes": IN_SPARK,
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in {**both, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Delta:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.table = f"delta.`{path.replace('s3://', 's3a://')}`"

    def tend(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.table}").collect()
        self.spark.sql(f"VACUUM {self.table} LITE RETAIN 0 HOURS").collect()

    def clean(self) -> None:
        """Remove every file that no version names."""
        self.spark.sql(f"VACUUM {self.table} RETAIN 0 HOURS").collect()


class Iceberg:
    table = "default.db.t"

    def __init__(self, spark: SparkSession, place: str) -> None:
        self.spark = spark

    def tend(self) -> None:
        for act in ICEBERG:
            self.spark.sql(f"CALL default.system.{act}").collect()

    def clean(self) -> None:
        """Remove every file that no snapshot names.

        The procedure keeps files of a day; the action that it calls keeps none.
        """
        jvm, session = self.spark._jvm, self.spark._jsparkSession
        assert jvm is not None
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, self.table)
        # In a folder this listing takes no folder for hidden: not the job's register, either.
        in_bucket = table.location().startswith("s3")
        for by_prefix in (False, True) if in_bucket else (False,):
            actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(session)
            action = actions.deleteOrphanFiles(table).usePrefixListing(by_prefix)
            action.olderThan(int(time.time() * 1000) + 60_000).execute()


def main(kind: str, place: str, folder: str, endpoint: str = "") -> None:
    spark = session(place, endpoint)
    table = Delta(spark, place) if kind == "delta" else Iceberg(spark, place)
    enough, asked = Path(folder, "enough"), Path(folder, "clean")
    told = {"done": 0, "lost": 0}

    def tried(act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception as error:
            if not any(race in str(error) for race in RACES):
                raise
            told["lost"] += 1
            return False
        return True

    while not enough.exists():
        told["done"] += tried(table.tend)
        if asked.exists() and tried(table.clean):
            asked.unlink()
        time.sleep(0.5)
    ids = [row[0] for row in spark.sql(f"SELECT id FROM {table.table}").collect()]
    print(json.dumps({**told, "ids": ids}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
