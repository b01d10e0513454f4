"""The sink ``abs-postgres``, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from abs_sinks.postgres import PostgresGroup, PostgresOptions, PostgresSink, transactions_of
from abs_sinks.postgres.budget import judge_together
from abs_sinks.postgres.sink import guarantee
from abs_spark.target import Format


def parse_options(given: Mapping[str, str]) -> PostgresOptions:
    """As ``PostgresOptions.parse``; see ``Format`` for why it is a function."""
    return PostgresOptions.parse(given)


def where(options: PostgresOptions) -> str:
    """Server, database and table."""
    return f"{options.address.place}, table {options.dbtable}"


FORMAT = Format(
    "abs-postgres",
    parse_options,
    PostgresSink,
    guarantee,
    where,
    transactions_of,
    PostgresGroup,
    PostgresOptions.replacing,
    judge_together,
)
