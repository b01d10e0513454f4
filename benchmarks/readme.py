"""The README's table of ratios, brought up to results/: no figure of it is typed in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ONCE, _S3A = "(at least once)", "parquet, s3a"
ROWS = (
    (f"500,000 rows an epoch | Spark's JDBC writer {_ONCE}", "spark_jdbc", "2pc", "jdbc", 1),
    (
        f"100 bytes a record | Spark's Kafka sink {_ONCE}",
        "spark_kafka_100, 100 bytes",
        "abs-kafka",
        "kafka (JVM)",
        2,
    ),
    ("**S3** job, Parquet | Spark's Parquet sink by s3a", "spark_s3", "abs-s3, 2pc", _S3A, 2),
    ("one for each target", "three_targets", "all three", "three queries", 2),
)
"""Rows of the table: text before the figures, result, whose speed over whose, digits of the ratio."""


def brought_up(page: str, documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The README with the figures of these results.

    Args:
        documents: by benchmark, as ``summary.documents_in`` reads them.

    Raises:
        ValueError: the page lacks a row, or has it twice, or the results lack a comparison.
    """
    results = {each["name"]: each for one in documents.values() for each in one["results"]}
    for begin, name, speed_of, over, digits in ROWS:
        (ratio,) = (
            each
            for each in results[name]["ratios"]
            if (each["speed of"], each["over"]) == (speed_of, over)
        )
        figure = f"{begin} | {ratio['median']:.{digits}f} |"
        page, count = re.subn(
            rf"{re.escape(begin)} \| [\d.]+ \|", figure.replace("\\", r"\\"), page
        )
        if count != 1:
            raise ValueError(f"README.md has {count} times the row: {begin}")
    return page
