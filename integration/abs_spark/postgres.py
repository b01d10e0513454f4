"""The format ``abs-postgres``."""

from __future__ import annotations

from abs_spark.formats.postgres import FORMAT
from abs_spark.source import AbsDataSource


class PostgresDataSource(AbsDataSource):
    """Writes to PostgreSQL exactly once; see ``abs_sinks.postgres`` for its options."""

    format = FORMAT
