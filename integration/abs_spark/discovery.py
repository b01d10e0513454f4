"""Where each format's class is, and what stands in for one that cannot be imported.

Spark imports every top-level module ``pyspark_*``, and one exception there would turn discovery off
for everybody's formats. So whatever is missing or broken (another version of Spark, a missing library)
is kept, and raised to who asks for that format. This module itself imports nothing that can be missing
where Spark is.
"""

from __future__ import annotations

import sys
from importlib import import_module

from pyspark.sql.datasource import DataSource

from abs_clients.extras import missing

FORMATS = {
    "abs-files": ("abs_spark.files", "FilesDataSource"),
    "abs-kafka": ("abs_spark.kafka", "KafkaDataSource"),
    "abs-postgres": ("abs_spark.postgres", "PostgresDataSource"),
    "abs-s3": ("abs_spark.s3", "S3DataSource"),
}
"""Module and class of each format."""


def default_source(name: str) -> type[DataSource]:
    """The class of the format, or one of the same name that raises ImportError when it is used.

    Args:
        name: one of ``FORMATS``.
    """
    module, attribute = FORMATS[name]
    try:
        found: type[DataSource] = getattr(import_module(module), attribute)
    except Exception as error:  # noqa: BLE001 - anything at all: see above
        lacking = missing(error, "It") if isinstance(error, ImportError) else None
        return _stand_in(name, str(lacking or f"{type(error).__name__}: {error}"))
    return found


def _stand_in(format_name: str, why: str) -> type[DataSource]:
    class Broken(DataSource):
        """Stands in for the real one, and says why that cannot be used."""

        @classmethod
        def name(cls) -> str:
            return format_name

        def __init__(self, options: object) -> None:
            raise ImportError(
                f"{format_name} cannot be used: {why}. It needs PySpark 4.1 or newer with pyarrow "
                "(on 3.5 and 4.0 write through abs_spark.epoch in foreachBatch), and abs-sinks "
                f"installed with its dependencies for Spark's Python, which is {sys.executable}: "
                "set PYSPARK_PYTHON to another one before the session is made."
            )

    return Broken
