"""The demo's hops: the streaming queries from the files to the last target.

Direct: files -> PostgreSQL. Through Kafka: files -> topic -> PostgreSQL, and topic -> S3: each hop
is exactly once, so the chain is. Epoch: files -> all three, and each epoch is in all or in none. Lake:
files -> PostgreSQL, topic, an Iceberg and a Delta table, likewise.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from abs_demo.flights import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from abs_spark.foreach.function import Epoch

JOB = "flights"
TABLE = "flights"
LAKE = "demo"
"""The namespace of the Iceberg table."""

PARTITIONS = 2
TAKEN_PER_EPOCH = 30_000
"""Records that a query takes from the topic at a time, at most."""

MESSAGE = ("carrier as key", "to_json(struct(*)) as value")
"""A flight as a record of the topic."""


class Route(StrEnum):
    """The route of the flights."""

    DIRECT = "direct"
    CHAIN = "chain"
    EPOCH = "epoch"
    LAKE = "lake"

    @property
    def is_one_query(self) -> bool:
        """Whether one query writes each epoch to several targets."""
        return self in (Route.EPOCH, Route.LAKE)


@dataclass(frozen=True, slots=True)
class Places:
    """A folder, and the addresses of the targets.

    Args:
        folder: of the input, the checkpoints, the log and the tables of the lake.
        url: libpq URI of the database, with its password.
        bootstrap: ``host:port`` of the broker; empty on the direct route.
        path: folder on S3: ``s3://bucket/prefix``.
        store: options of the S3 server.
        secrets: environment variables with the S3 credentials.
    """

    folder: Path
    url: str = field(repr=False)
    bootstrap: str = ""
    topic: str = ""
    path: str = ""
    store: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def table(self, protocol: str) -> dict[str, str]:
        """Options of the sink that writes to the table."""
        keyed = {"write": "upsert", "key": ",".join(KEY)} if protocol == "idempotent" else {}
        return {"url": self.url, "dbtable": TABLE, "protocol": protocol, **keyed}

    @property
    def lake(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Format and options of the sinks that write to tables of the lake, by name."""
        folder = self.folder / "lake"
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        catalog["warehouse"] = f"file://{folder}"
        catalog_options = {f"catalog.{name}": value for name, value in catalog.items()}
        iceberg = {"table": f"{LAKE}.{TABLE}", **catalog_options}
        return {
            "iceberg": ("abs-iceberg", iceberg),
            "delta": ("abs-delta", {"path": f"{folder}/delta"}),
        }


def prepare_lake(places: Places) -> None:
    """Make the catalog and its namespace."""
    from pyiceberg.catalog import load_catalog

    _, options = places.lake["iceberg"]
    (places.folder / "lake").mkdir(exist_ok=True)
    prefix = "catalog."
    properties = {n.removeprefix(prefix): v for n, v in options.items() if n.startswith(prefix)}
    load_catalog("default", **properties).create_namespace_if_not_exists(LAKE)


def further_places(places: Places, environment: Mapping[str, str]) -> Places:
    """These places, with a new topic and, where there is a server for it, an S3 folder.

    ``environment`` are the environment variables of the broker and of the S3 server.
    """
    from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are there
        AdminClient,
        NewTopic,
    )

    name = f"flights-{secrets.token_hex(4)}"
    bootstrap = environment["ABS_KAFKA_BOOTSTRAP"]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})  # quiet when it ends
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    places = replace(places, bootstrap=bootstrap, topic=name)
    if "ABS_S3_BUCKET" not in environment:
        return places
    return replace(
        places,
        path=f"s3://{environment['ABS_S3_BUCKET']}/{name}",
        store={
            "endpoint": environment["ABS_S3_ENDPOINT"],
            "region": environment["AWS_DEFAULT_REGION"],
        },
        secrets={key: environment[key] for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")},
    )


def into_topic(flights: DataFrame, places: Places) -> DataStreamWriter:
    """Each flight as one message: a JSON object, keyed by its carrier."""
    return (
        flights.selectExpr(*MESSAGE)
        .writeStream.format("abs-kafka")
        .options(
            topic=places.topic,
            job="flights-to-kafka",
            **{"kafka.bootstrap.servers": places.bootstrap},
        )
    )


def from_topic(spark: SparkSession, places: Places, schema: str) -> DataFrame:
    """The flights from the topic, as their columns."""
    from pyspark.sql import functions as f

    messages = (
        spark.readStream.format("abs-kafka")
        .option("kafka.bootstrap.servers", places.bootstrap)
        .option("subscribe", places.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", TAKEN_PER_EPOCH)
        .load()
    )
    parsed = f.from_json(f.col("value").cast("string"), schema, {"mode": "FAILFAST"})
    return messages.select(parsed.alias("flight")).select("flight.*")


def into_bucket(flights: DataFrame, places: Places) -> DataStreamWriter:
    """Parquet files under the path."""
    return flights.writeStream.format("abs-s3").options(
        path=places.path, job="flights-to-s3", **places.store
    )


def into_all(protocol: str, places: Places, checkpoint: str, route: Route) -> Epoch:
    """The function for ``foreachBatch`` that writes each epoch to all targets."""
    import abs_spark

    topic = {"kafka.bootstrap.servers": places.bootstrap, "topic": places.topic}
    sinks = [
        abs_spark.sink("abs-postgres", places.table(protocol), name="table"),
        abs_spark.sink("abs-kafka", topic, name="topic", select=MESSAGE),
    ]
    if route is Route.EPOCH:
        options = {"path": places.path, **places.store}
        sinks.append(abs_spark.sink("abs-s3", options, name="bucket"))
    else:
        sinks += [
            abs_spark.sink(named, {**options, "createtable": "true"}, name=name)
            for name, (named, options) in places.lake.items()
        ]
    return abs_spark.epoch(sinks, job=JOB, checkpointLocation=checkpoint)
