"""Figures in the README."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.pages.figures import Results, Sentence, row
from benchmarks.pages.named import (
    BY_ROWS,
    FOLDER,
    KAFKA,
    LIBRDKAFKA,
    S3A,
    TWO_PHASE,
    added_ms,
    epoch_ms,
    flink,
    s3_epoch_ms,
)

README = "README.md"
_KAFKA_100, _KAFKA_1000 = "spark_kafka_100, 100 bytes", "spark_kafka_1000, 1000 bytes"
_AT_LEAST, _COMMIT = "at least once", "inspect and commit"
_SETTING = (
    "[one setting of Spark's](docs/how-to/running-on-spark.md#large-epochs-one-setting-of-sparks)"
)
_ONCE = "(at least once)"
_ROWS = (
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


def in_readme() -> Iterator[Sentence]:
    yield from (row(README, *each) for each in _ROWS)


def _cpu_of_steps(results: Results) -> Iterator[str]:
    for step, digits in (
        ("take over noop (hand over to Python, planner and commit processes)", 1),
        ("copy + commit over encode (COPY and COMMIT)", 1),
        ("encode over take (check and encode)", 2),
    ):
        _, cpu_ms = results.numbers("spark_jdbc", step)  # of an epoch of half a million rows
        yield f"{cpu_ms * 2 / 1000:.{digits}f}"
    yield f"{results.median('spark_jdbc', '2pc, batches by rows', '2pc'):.1f}"


def in_text_of_readme() -> Iterator[Sentence]:
    yield Sentence(
        README,
        "a Parquet job to S3 runs {} times as fast",
        lambda r: [f"{s3_epoch_ms(r, TWO_PHASE) / s3_epoch_ms(r, BY_ROWS):.1f}"],
    )
    yield Sentence(
        README,
        "On S3 it makes as many requests, and an epoch of `wal` takes {} ms instead of {}.",
        lambda r: [
            f"{r.fact('s3_listing, wal', f'ms of an epoch at epoch {number} (median)'):.0f}"
            for number in ("2,000", "10")
        ],
    )
    yield Sentence(
        README,
        "An epoch of 1,000 S3 handles is inspected and committed in {} s, and committed alone "
        "in {} s.",
        lambda r: [
            f"{r.fact('s3_commit', f'seconds of {what} (fastest, median)')[1]:.1f}"
            for what in ("inspect and commit", "commit")
        ],
    )
    yield Sentence(
        README,
        "Spark's `foreachBatch` with an empty `mapInArrow` takes {} ms. PostgreSQL adds {} ms "
        "(goal: 30), S3 {} (80), Kafka {} (50), and all three under one decision {} (100).",
        lambda r: [
            epoch_ms(r, "empty mapInArrow"),
            *(added_ms(r, target) for target in ("postgres", "s3", "kafka", "all three")),
        ],
    )
    yield Sentence(
        README,
        "relative to Spark's Kafka sink: {} at 100 bytes. One query to all three takes {} of "
        "the CPU of three queries. S3 `wal` runs at {} of the speed of `2pc`.",
        lambda r: [
            f"{r.ratio(_KAFKA_100, 'abs-kafka', KAFKA)['cpu']:.2f}",
            f"{r.ratio('three_targets', 'all three', 'three queries')['cpu']:.2f}",
            f"{1 / r.median('spark_s3', TWO_PHASE, 'abs-s3, wal'):.2f}",
        ],
    )
    yield Sentence(
        README,
        "handing them from the JVM to Python takes {} s, the COPY {} s, checks and encoding {} "
        "s. The cost of exactly-once is too small to measure. With the setting of Spark's "
        "named above, the job runs at {} times the speed.",
        _cpu_of_steps,
    )
    yield Sentence(
        README,
        "the embedded runtime runs at {} times PyFlink's SQL with one worker, and at {} times "
        "with two.",
        lambda r: flink(r, "SQL", "arrow"),
    )
