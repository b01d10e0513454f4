"""Lets Spark find the format ``abs-postgres``: it imports every top-level module ``pyspark_*``.

An exception here would turn discovery off for everybody's formats. So whatever is missing or broken
(another version of Spark, a missing library) is kept, and raised to who asks for this format.
"""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]

try:
    from abs_spark.postgres import PostgresDataSource as DefaultSource
except Exception as error:  # noqa: BLE001 - anything at all: see above
    _WHY = f"{type(error).__name__}: {error}"

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        """Stands in for the real one, and says why that cannot be used."""

        @classmethod
        def name(cls) -> str:
            return "abs-postgres"

        def __init__(self, options: object) -> NoReturn:
            raise ImportError(
                f"abs-postgres cannot be used: {_WHY}. It needs PySpark 4.1 or newer with pyarrow, "
                "and abs-sinks installed with its dependencies for Spark's Python."
            )
