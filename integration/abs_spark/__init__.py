"""Exactly-once sinks and replayable sources for PySpark: the formats ``abs-...``.

Spark finds the formats by itself where the distribution is installed for its Python. Where it is
reachable only by other ways, ``abs_spark.register(spark)`` does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the formats known to this Spark session; harmless where they are known already.

    One whose libraries are missing says so when it is used. The package must be importable by the
    Python of Spark's driver and executors all the same.
    """
    from abs_spark.discovery import FORMATS, default_source

    for name in FORMATS:
        spark.dataSource.register(default_source(name))
