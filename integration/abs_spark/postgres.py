"""The format ``abs-postgres``."""

from __future__ import annotations

from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_spark.source import AbsDataSource
from abs_spark.target import Format


class PostgresDataSource(AbsDataSource):
    """Writes to PostgreSQL exactly once; see ``abs_sinks.postgres`` for its options."""

    format = Format("abs-postgres", PostgresOptions.parse, PostgresSink)
