"""Exactly-once sinks for PySpark: the formats ``abs-postgres`` and, later, its siblings.

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

    The package must be importable by the Python of Spark's driver and executors all the same.
    """
    from abs_spark.postgres import PostgresDataSource

    spark.dataSource.register(PostgresDataSource)
