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
    IDEMPOTENT = "idempotent"
    """What is written again has no effect."""
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
        compared: the row of docs/explanation/compared.md with the same statement; of others.
        keyed: whether a row replaces the older one of its key, in this way or with an option of it.
        docs: where its settings and its promise come from.
    """

    name: str
    way: str
    targets: tuple[str, ...]
    states: States
    docs: str
    protocol: str = ""
    jar: str = ""
    keyed: bool = False
    compared: str = ""


_SPARK = "https://spark.apache.org/docs/4.1.1/streaming/"
_OURS = "docs/reference/"


def _ours(
    format_: str, target: str, protocol: str, page: str, read: str = "", *, keyed: bool = False
) -> Contestant:
    return Contestant(
        f"{format_}, {protocol}",
        target,
        (read or target,),
        States.EXACTLY,
        _OURS + page,
        protocol,
        keyed=keyed,
    )


CONTESTANTS = (
    *(
        _ours("abs-postgres", "postgres", protocol, "options.md", keyed=protocol != "2pc")
        for protocol in ("2pc", "wal", "idempotent")
    ),
    *(
        _ours("abs-kafka", "kafka", protocol, "kafka.md")
        for protocol in ("2pc", "wal", "idempotent")
    ),
    *(_ours("abs-s3", "s3", protocol, "s3.md") for protocol in ("2pc", "wal")),
    _ours("abs-s3", "s3", "idempotent", "s3.md", "seen"),
    _ours("abs-delta", "abs_delta", "2pc", "tables.md", "seen"),
    _ours("abs-iceberg", "abs_iceberg", "2pc", "tables.md", "seen"),
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
        compared="Spark's Kafka sink",
    ),
    Contestant(
        "Spark's file sink",
        "spark_files",
        ("seen",),
        States.EXACTLY,
        f"{_SPARK}apis-on-dataframes-and-datasets.html",
        compared="Spark's file sink",
    ),
    Contestant(
        "JDBC append in foreachBatch",
        "jdbc_append",
        ("postgres",),
        States.AT_LEAST,
        f"{_SPARK}apis-on-dataframes-and-datasets.html",
        jar=JDBC_JAR,
        compared="`foreachBatch` + JDBC `append`",
    ),
    Contestant(
        "MERGE by key in foreachBatch",
        "merge",
        ("postgres",),
        States.AT_LEAST,  # by the guide; that a replay converges is MERGE's, not a promise of Spark's
        f"{_SPARK}apis-on-dataframes-and-datasets.html",
        jar=JDBC_JAR,
        keyed=True,
        compared="`foreachBatch` + `MERGE` by key",
    ),
    Contestant(
        "batch id in a table",
        "batch_id",
        ("postgres",),
        States.EXACTLY,
        f"{_SPARK}apis-on-dataframes-and-datasets.html",
        jar=JDBC_JAR,
        compared="batch id in a table of your own",
    ),
    Contestant(
        "deltalake, application transaction",
        "deltalake",
        ("seen",),
        States.IDEMPOTENT,
        "https://docs.delta.io/delta-streaming/",
        compared="Delta with `txnAppId`, `txnVersion`",
    ),
    Contestant(
        "Delta's streaming sink",
        "delta",
        ("seen",),
        States.EXACTLY,
        "https://docs.delta.io/delta-streaming/",
        jar=DELTA_JAR,
        compared="Delta's streaming sink",
    ),
    Contestant(
        "Iceberg's streaming sink",
        "iceberg",
        ("seen",),
        States.NOTHING,
        "https://iceberg.apache.org/docs/latest/spark-structured-streaming/",
        jar=ICEBERG_JAR,
        compared="Iceberg's streaming sink",
    ),
)
