"""The README's table of ratios, brought up to results/: no figure of it is typed in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

KAFKA, S3A, FOLDER = "kafka (JVM)", "parquet, s3a", "parquet, local folder"
LIBRDKAFKA, TWO_PHASE = "abs-kafka, librdkafka", "abs-s3, 2pc"
BY_ROWS = "abs-s3, 2pc, batches by rows"
_KAFKA_100, _KAFKA_1000 = "spark_kafka_100, 100 bytes", "spark_kafka_1000, 1000 bytes"
_AT_LEAST, _COMMIT = "at least once", "inspect and commit"
_SETTING = (
    "[one setting of Spark's](docs/how-to/running-on-spark.md#large-epochs-one-setting-of-sparks)"
)
_ONCE = "(at least once)"
ROWS = (
    (f"500,000 rows an epoch | Spark's JDBC writer {_ONCE}", "spark_jdbc", "2pc", "jdbc", 1),
    ("with `reWriteBatchedInserts=true`", "spark_jdbc", "2pc", "jdbc, rewriting", 1),
    ("by the same COPY", "exactly_once_vs_at_least_once", "2pc", "copy + commit", 2),
    (f"100 bytes a record | Spark's Kafka sink {_ONCE}", _KAFKA_100, "abs-kafka", KAFKA, 2),
    ("100 bytes, `producer=librdkafka` | the same", _KAFKA_100, LIBRDKAFKA, KAFKA, 2),
    ("1 KB a record | the same", _KAFKA_1000, "abs-kafka", KAFKA, 2),
    ("1 KB, `producer=librdkafka` | the same", _KAFKA_1000, LIBRDKAFKA, KAFKA, 2),
    ("the same job at least once", "kafka_exactly_once, 1000 bytes", "abs-kafka", _AT_LEAST, 2),
    ("100 bytes | librdkafka", "kafka_writer, 100 bytes", "2pc writer", "produce loop", 1),
    ("source | Spark's Kafka source", "kafka_source", "abs-kafka", KAFKA, 2),
    ("**S3** job, Parquet | Spark's Parquet sink by s3a", "spark_s3", TWO_PHASE, S3A, 2),
    ("the same | Spark's Parquet sink to a local folder", "spark_s3", TWO_PHASE, FOLDER, 2),
    (f"with {_SETTING} | Spark's Parquet sink by s3a", "spark_s3", BY_ROWS, S3A, 2),
    ("that setting | Spark's Parquet sink to a local folder", "spark_s3", BY_ROWS, FOLDER, 2),
    ("upload of one task | boto3", "s3_upload", "the sink", "boto3 unsigned", 2),
    ("1,000 handles | boto3, commit only", "s3_commit", _COMMIT, "boto3: bare Complete", 2),
    ("one for each target", "three_targets", "all three", "three queries", 2),
    ("batches, 1 worker | Bytewax", "keyed_count, 1 worker", "arrow", "bytewax, batches", 1),
    ("the same, 2 workers | Bytewax", "keyed_count, 2 workers", "arrow", "bytewax, batches", 1),
    ("row by row, 1 worker | Bytewax", "keyed_count, 1 worker", "rows", "bytewax, records", 2),
    ("| no snapshots", "snapshot_ways, aligned every 3 s", "aligned", "none", 2),
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
        figures = (
            f"{begin} | {ratio['median']:.{digits}f} | {ratio['q1']:.2f} - {ratio['q3']:.2f} "
            f"| {ratio['count']} |"
        )
        page, count = re.subn(
            rf"{re.escape(begin)} \| [\d.]+ \| [\d.]+ - [\d.]+ \| \d+ \|",
            figures.replace("\\", r"\\"),
            page,
        )
        if count != 1:
            raise ValueError(f"README.md has {count} times the row: {begin}")
    return page
