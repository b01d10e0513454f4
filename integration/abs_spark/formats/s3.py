"""The sink ``abs-s3``, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from abs_sinks.s3 import S3Options, S3Sink
from abs_spark.target import Format


def parse_options(given: Mapping[str, str]) -> S3Options:
    """As ``S3Options.parse``; a function, because Spark pickles a class method by value.

    A target that is unpickled twice would not equal itself then, and its run never be found again.
    """
    return S3Options.parse(given)


FORMAT = Format("abs-s3", parse_options, S3Sink, S3Sink)
