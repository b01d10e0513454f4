"""The sink ``abs-postgres``, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from abs_sinks.postgres import PostgresGroup, PostgresOptions, PostgresSink, transactions_of
from abs_sinks.postgres.budget import judge_together
from abs_sinks.postgres.guarantee import guarantee
from abs_spark.target import Format


def parse_options(given: Mapping[str, str]) -> PostgresOptions:
    """As ``PostgresOptions.parse``; a function, because Spark pickles a class method by value.

    A target that is unpickled twice would not equal itself then, and its run never be found again.
    """
    return PostgresOptions.parse(given)


def beside(options: PostgresOptions, schema: pa.Schema) -> PostgresSink:
    """The sink of a job whose register is elsewhere, or has other sinks, too.

    A function for the same reason: partial objects do not equal themselves once unpickled.
    """
    return PostgresSink(options, schema, co_commit=False)


def where(options: PostgresOptions) -> str:
    """Server, database and table."""
    return f"{options.address.place}, table {options.dbtable}"


def replacing(options: PostgresOptions) -> PostgresOptions | None:
    """See ``PostgresOptions.replacing``."""
    return options.replacing()


FORMAT = Format(
    "abs-postgres",
    parse_options,
    PostgresSink,
    beside,
    guarantee,
    where,
    transactions_of,
    PostgresGroup,
    replacing,
    judge_together,
)
