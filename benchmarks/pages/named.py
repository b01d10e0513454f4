"""What several pages say of a benchmark, and the names of its sides."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.pages.figures import Results

KAFKA, S3A, FOLDER = "kafka (JVM)", "parquet, s3a", "parquet, local folder"
LIBRDKAFKA, TWO_PHASE = "abs-kafka, librdkafka", "abs-s3, 2pc"
BY_ROWS = "abs-s3, 2pc, batches by rows"


def added_ms(results: Results, target: str) -> str:
    """What a target adds to a small epoch."""
    return f"{results.numbers('small_epochs', f'{target} over empty mapInArrow')[0]:.0f}"


def epoch_ms(results: Results, side: str) -> str:
    """A small epoch's median."""
    return f"{results.numbers('small_epochs', f'{side}: p50, p99')[0]:.0f}"


def s3_epoch_ms(results: Results, side: str) -> float:
    """An epoch of a million rows to S3."""
    return float(results.fact("spark_s3", f"ms of an epoch of {side} (median)"))


def flink(results: Results, form: str, side: str) -> Iterator[str]:
    """How many times as fast as PyFlink, with one worker and with two."""
    for workers in ("1 worker", "2 workers"):
        result = f"keyed_count_flink, {form}, {workers}"
        yield f"{results.median(result, side, f'flink, {form}'):.1f}"
