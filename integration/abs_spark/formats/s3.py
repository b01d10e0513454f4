"""The sink ``abs-s3``, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from abs_sinks.s3 import S3Options, S3Sink
from abs_sinks.s3.sink import guarantee
from abs_spark.target import Format


def parse_options(given: Mapping[str, str]) -> S3Options:
    """As ``S3Options.parse``; see ``Format`` for why it is a function."""
    return S3Options.parse(given)


def sink(options: S3Options, schema: pa.Schema, *, co_commit: bool = True) -> S3Sink:
    """The same sink in every job: the register and the files never change together."""
    return S3Sink(options, schema)


def where(options: S3Options) -> str:
    """Bucket and prefix."""
    return str(options.path)


FORMAT = Format("abs-s3", parse_options, sink, guarantee, where)
