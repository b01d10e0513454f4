"""Spark jobs that do not use our sinks: ``foreachBatch`` by the usual recipes; see ``MODES``.

Arguments: mode, URL of the database or address of the brokers, topic, folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from confluent_kafka import Producer

from tests.chaos.jobs import plain
from tests.spark.jobs.session import small_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Recipe = Callable[["DataFrame", int], None]
Step = Callable[[Any, int, list[dict[str, Any]]], None]

LINGER_MS = 3000


def into_table(url: str, step: Step) -> Recipe:
    def write(batch: DataFrame, epoch: int) -> None:
        rows = [row.asDict() for row in batch.collect()]
        with psycopg.connect(url, autocommit=True) as connection:
            step(connection, epoch, rows)

    return write


def without_flush(producer: Producer, topic: str) -> Recipe:
    """Spark notes an epoch whose records are still in the producer."""

    def write(batch: DataFrame, epoch: int) -> None:
        for row in batch.selectExpr("to_json(struct(*)) AS value").collect():
            producer.produce(topic, row["value"])
        producer.poll(0)

    return write


def main(mode: str, address: str, topic: str, folder: Path) -> None:
    spark = small_session(folder / "scratch")
    producer = Producer({"bootstrap.servers": address, "linger.ms": LINGER_MS}) if topic else None
    recipe = (
        into_table(address, plain.MODES[mode])
        if producer is None
        else without_flush(producer, topic)
    )
    (
        spark.readStream.schema("id BIGINT, name STRING")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "input"))
        .writeStream.foreachBatch(recipe)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    if producer is not None:
        producer.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
