"""The sink ``abs-postgres``, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_spark.target import Format


def parse_options(given: Mapping[str, str]) -> PostgresOptions:
    """As ``PostgresOptions.parse``; a function, because Spark pickles a class method by value.

    A target that is unpickled twice would not equal itself then, and its run never be found again.
    """
    return PostgresOptions.parse(given)


FORMAT = Format("abs-postgres", parse_options, PostgresSink, partial(PostgresSink, co_commit=False))
