"""The classes under which Spark finds the formats.

Spark imports every top-level module ``pyspark_*``; one exception there turns discovery off for all
formats. So a format's libraries are imported when it is used.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
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
    """The class under which Spark finds the format; it imports the format's own class when used.

    Args:
        name: one of ``FORMATS``.
    """

    class Found(DataSource):
        """Makes an instance of the format's own class, or raises ImportError."""

        def __new__(cls, options: MutableMapping[str, str]) -> DataSource:  # type: ignore[misc]
            return format_class(name)(options)

        @classmethod
        def name(cls) -> str:
            return name

    return Found


def format_class(name: str) -> type[DataSource]:
    """The format's own class.

    Args:
        name: one of ``FORMATS``.

    Raises:
        ImportError: it cannot be used here; the text has the reason.
    """
    module, attribute = FORMATS[name]
    try:
        found: type[DataSource] = getattr(import_module(module), attribute)
    except Exception as error:
        lacking = missing(error, "It") if isinstance(error, ImportError) else None
        raise ImportError(
            f"{name} cannot be used: {lacking or f'{type(error).__name__}: {error}'}. It needs "
            "PySpark 4.1 or newer with pyarrow (on 3.5 and 4.0 write through abs_spark.epoch in "
            "foreachBatch), and abs-sinks installed with its dependencies for Spark's Python, which "
            f"is {sys.executable}: set PYSPARK_PYTHON to another one before the session is made."
        ) from error
    return found
