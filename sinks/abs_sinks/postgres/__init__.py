"""The PostgreSQL sink: from Arrow batches to rows that appear exactly once."""

from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.register import PostgresRegister
from abs_sinks.postgres.sink import PostgresSink

__all__ = ["PostgresOptions", "PostgresRegister", "PostgresSink"]
