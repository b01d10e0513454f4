"""The PostgreSQL sink: from Arrow batches to rows that appear exactly once."""

from abs_sinks.postgres.group import PostgresGroup, transactions_of
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.register import PostgresRegister
from abs_sinks.postgres.sink import PostgresSink

__all__ = [
    "PostgresGroup",
    "PostgresOptions",
    "PostgresRegister",
    "PostgresSink",
    "transactions_of",
]
