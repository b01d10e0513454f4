"""Who is on the scoreboard, what each states, and where its own documentation says how it is set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

KAFKA_JAR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"
JDBC_JAR = "org.postgresql:postgresql:42.7.8"
DELTA_JAR = "io.delta:delta-spark_4.1_2.13:4.2.0"
ICEBERG_JAR = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"


class States(StrEnum):
    """What a sink promises about rows, in its own documentation."""

    EXACTLY = "exactly once"
    AT_LEAST = "at least once"
    NOTHING = "nothing stated"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One sink, or recipe.

    Args:
        name: of its row.
        way: of ``job.WAYS``.
        targets: what is audited: ``postgres``, ``kafka``, ``s3``, or ``seen``: what the job's reader
            has exported at its end, for folders that only their own readers understand.
        protocol: of ours.
        jar: what the session needs besides Spark, by Maven coordinates.
        docs: where its settings and its promise come from.
    """

    name: str
    way: str
    targets: tuple[str, ...]
    states: States
    docs: str
    protocol: str = ""
    jar: str = ""


_SPARK = "https://spark.apache.org/docs/4.1.1/streaming/"
_OURS = "docs/reference/"


def _ours(format_: str, target: str, protocol: str, page: str, read: str = "") -> Contestant:
    return Contestant(
        f"{format_}, {protocol}", target, (read or target,), States.EXACTLY, _OURS + page, protocol
    )


CONTESTANTS = (
    *(
        _ours("abs-postgres", "postgres", protocol, "options.md")
        for protocol in ("2pc", "wal", "idempotent")
    ),
    *(
        _ours("abs-kafka", "kafka", protocol, "kafka.md")
        for protocol in ("2pc", "wal", "idempotent")
    ),
    *(_ours("abs-s3", "s3", protocol, "s3.md") for protocol in ("2pc", "wal")),
    _ours("abs-s3", "s3", "idempotent", "s3.md", "seen"),
    Contestant(
        "epoch: all three, 2pc",
        "epoch",
        ("postgres", "kafka", "s3"),
        States.EXACTLY,
        "docs/how-to/several-sinks.md",
        "2pc",
    ),
    Contestant(
        "Spark's Kafka sink",
        "spark_kafka",
        ("kafka",),
        States.AT_LEAST,
        f"{_SPARK}structured-streaming-kafka-integration.html",
        jar=KAFKA_JAR,
    ),
    Contestant(
        "Spark's file sink",
        "spark_files",
        ("seen",),
        States.EXACTLY,
        f"{_SPARK}apis-on-dataframes-and-datasets.html",
    ),
    Contestant(
        "JDBC append in foreachBatch",
        "jdbc_append",
        ("postgres",),
        States.AT_LEAST,
        f"{_SPARK}apis-on-dataframes-and-datasets.html",
        jar=JDBC_JAR,
    ),
    Contestant(
        "MERGE by key in foreachBatch",
        "merge",
        ("postgres",),
        States.AT_LEAST,  # by the guide; that a replay converges is MERGE's, not a promise of Spark's
        f"{_SPARK}apis-on-dataframes-and-datasets.html",
        jar=JDBC_JAR,
    ),
    Contestant(
        "batch id in a table",
        "batch_id",
        ("postgres",),
        States.EXACTLY,
        f"{_SPARK}apis-on-dataframes-and-datasets.html",
        jar=JDBC_JAR,
    ),
    Contestant(
        "deltalake, application transaction",
        "deltalake",
        ("seen",),
        States.EXACTLY,
        "https://delta-io.github.io/delta-rs/usage/writing/",
    ),
    Contestant(
        "Delta's streaming sink",
        "delta",
        ("seen",),
        States.EXACTLY,
        "https://docs.delta.io/delta-streaming/",
        jar=DELTA_JAR,
    ),
    Contestant(
        "Iceberg's streaming sink",
        "iceberg",
        ("seen",),
        States.NOTHING,
        "https://iceberg.apache.org/docs/latest/spark-structured-streaming/",
        jar=ICEBERG_JAR,
    ),
)
