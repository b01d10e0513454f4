"""Figures in the reference."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from benchmarks.pages.figures import Results, Sentence
from benchmarks.pages.named import BY_ROWS, FOLDER, KAFKA, S3A, s3_epoch_ms

FILES_SOURCE = "docs/reference/files-source.md"
KAFKA_SOURCE = "docs/reference/kafka-source.md"
S3 = "docs/reference/s3.md"


def _us_a_row(results: Results, result: str, side: str) -> str:
    sample = results.middle(result, side)
    return f"{sample['cpu_s'] / sample['amount'] * 1e6:.2f}"


def in_files_source() -> Iterator[Sentence]:
    def alone(results: Results) -> Iterator[str]:
        yield from results.spread("files_source", "source", "pyarrow")
        yield f"{results.speed('files_source', 'source'):.0f}"

    def spark(results: Results) -> Iterator[str]:
        found = results.ratio("files_source", "abs-files", "parquet (JVM)")
        yield f"{results.speed('files_source', 'abs-files'):.1f}"
        yield from (f"{found['median']:.2f}", f"{found['cpu']:.1f}")

    yield Sentence(FILES_SOURCE, "({}, quartiles {} and {}; {} M rows/s)", alone)
    yield Sentence(
        FILES_SOURCE,
        "it reads {} M rows/s, which is {} of Spark's own reader in the JVM, with {} times the "
        "CPU time",
        spark,
    )


def in_kafka_source() -> Iterator[Sentence]:
    def line(results: Results, side: str, over: str) -> Iterator[str]:
        yield f"{results.speed('kafka_source', side):.2f}"
        if over:
            yield from results.spread("kafka_source", side, over)
        yield _us_a_row(results, "kafka_source", side)

    for begin, side, over, of in (
        ("messages discarded", "consume loop", "", ""),
        ("`KafkaSource`, Arrow batches", "source", "consume loop", "of the loop; quartiles"),
        ("batch read, rows discarded", "abs-kafka", KAFKA, "of Spark's own;"),
        ("its own source (JVM)", KAFKA, "", ""),
    ):
        compared = f" ({{}} {of} {{}} - {{}})" if over else ""
        text = f"{begin} | {{}}{compared} | {{}} |"
        yield Sentence(KAFKA_SOURCE, text, partial(line, side=side, over=over))


def _uploads(results: Results) -> Iterator[str]:
    for over in ("boto3 unsigned, CRC", "awscrt, CRC"):
        yield f"{results.median('s3_upload', 'the sink', over):.2f}"


def _upload_cpu(results: Results) -> Iterator[str]:
    yield f"{results.ratio('s3_upload', 'the sink', 'boto3 unsigned')['cpu']:.1f}"
    for side, digits in (("the sink", 2), ("boto3 unsigned", 2), ("boto3 signed", 1)):
        sample = results.middle("s3_upload", side)
        yield f"{sample['cpu_s'] / sample['amount'] * 1000:.{digits}f}"


def _spark_s3(results: Results) -> Iterator[str]:
    for side in ("abs-s3, 2pc", "abs-s3, wal", S3A, FOLDER):
        yield f"{s3_epoch_ms(results, side) / 1000:.2f}"
    for over in (S3A, FOLDER):
        yield f"{results.median('spark_s3', 'abs-s3, 2pc', over):.2f}"
    yield f"{s3_epoch_ms(results, BY_ROWS) / 1000:.2f}"
    for over in (S3A, FOLDER):
        yield f"{results.median('spark_s3', BY_ROWS, over):.2f}"


def _listings(results: Results, name: str, digits: int = 0) -> Iterator[str]:
    """A fact of all protocols, at epoch 10 and at epoch 2,000."""
    for protocol in ("2pc", "wal", "idempotent"):
        for number in ("10", "2,000"):
            found = results.fact(f"s3_listing, {protocol}", name.format(number))
            yield f"{found:.{digits if protocol == 'idempotent' else 0}f}"


def in_s3() -> Iterator[Sentence]:
    yield Sentence(
        S3, "{} of boto3 without payload signing and with a CRC-64, {} of awscrt", _uploads
    )
    yield Sentence(
        S3,
        "The client's CPU time is {} times that of boto3 alone ({} against {} ms for a "
        "megabyte): the sink copies the data into parts, once, while those clients send one "
        "buffer repeatedly. Signing payloads takes boto3 {} ms.",
        _upload_cpu,
    )
    yield Sentence(
        S3,
        "{} s with 2pc, {} s with wal. Spark's own file sink takes {} s by hadoop-aws to the "
        "same server, and {} s to a local folder: 2pc runs at {} and {} of their speed. With "
        "[one setting of "
        "Spark's](../how-to/running-on-spark.md#large-epochs-one-setting-of-sparks) 2pc takes "
        "{} s, and runs at {} and {} of their speed",
        _spark_s3,
    )
    for begin, name, digits in (
        (
            "requests of an epoch, at epoch 10 and at epoch 2,000",
            "requests of an epoch at epoch {}",
            1,
        ),
        (
            "ms of an epoch, at epoch 10 and at epoch 2,000",
            "ms of an epoch at epoch {} (median)",
            0,
        ),
        (
            "requests of a reader that asks what is committed",
            "requests of a reader that asks what is committed at epoch {}",
            0,
        ),
        ("bytes of the register", "bytes of the register at epoch {}", 0),
    ):
        text = f"| {begin} | {{}}, {{}} | {{}}, {{}} | {{}}, {{}} |"
        yield Sentence(S3, text, partial(_listings, name=name, digits=digits))

    def speeds(results: Results) -> Iterator[str]:
        for protocol, many in (("2pc", 1), ("idempotent", 2), ("wal", 3)):
            found = results.spread(f"s3_listing, {protocol}", "epoch 2,000", "epoch 10", 3)
            yield from islice(found, many)

    yield Sentence(
        S3,
        "By the median of seven pairs 2pc reaches it with {}. idempotent has {}, but its lower "
        "quartile is {}. wal misses the goal with {} (quartiles {} and {})",
        speeds,
    )
