"""The PostgreSQL sink: from Arrow batches to rows that appear exactly once."""

from typing import TYPE_CHECKING

from abs_sinks import face

if TYPE_CHECKING:
    from abs_sinks.postgres.options import PostgresOptions, transactions_of
    from abs_sinks.postgres.register import PostgresRegister
    from abs_sinks.postgres.sink import PostgresGroup, PostgresSink

__all__ = [
    "PostgresGroup",
    "PostgresOptions",
    "PostgresRegister",
    "PostgresSink",
    "transactions_of",
]

__getattr__ = face(
    __name__,
    PostgresGroup="sink",
    PostgresOptions="options",
    PostgresRegister="register",
    PostgresSink="sink",
    transactions_of="options",
)
