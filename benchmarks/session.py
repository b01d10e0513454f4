"""The one Spark session of a benchmark run: local, two tasks at once, with the JDBC driver on board."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from abs_services.paths import cache_folder

JDBC_DRIVER = "org.postgresql:postgresql:42.7.8"
"""The peer's driver, by Maven coordinates; Spark's own Ivy resolves it once, into our cache."""

TASKS = 2

BATCHES_BY_ROWS = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}
"""Bounds Spark's Arrow batches by rows alone, as Spark 3.5 does.

By default Spark 4.1+ bounds them by bytes, too, and computes the size of the whole batch after every
row (`docs/how-to/running-on-spark.md`). Spark leaves the computation out at exactly this value.
"""


@contextmanager
def spark_session(scratch: Path) -> Iterator[SparkSession]:
    """A session as a user has it, with Spark's defaults but for what a benchmark needs.

    Args:
        scratch: takes Spark's temporary files and warehouse.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .appName("abs-sinks benchmarks")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.jars.packages", JDBC_DRIVER)
        .config("spark.jars.ivy", str(cache_folder() / "ivy"))
    )
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
