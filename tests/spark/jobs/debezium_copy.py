"""An example job: Debezium's events in a topic -> a copy of the table, until the topic is read."""

from __future__ import annotations

import os
from pathlib import Path

import abs_spark
from tests.spark.jobs.session import small_session


def copy(bootstrap: str, topic: str, columns: str, folder: str, per_epoch: int) -> None:
    """The table's URL is in the environment variable ``ABS_TEST_URL``."""
    spark = small_session(Path(folder) / f"scratch-{os.getpid()}")
    events = (
        spark.readStream.format("abs-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_epoch)
        .load()
    )
    changes = abs_spark.debezium(
        events,
        columns,
        decimals="precise",
        scales={"price": 2},
        binary="bytes",
        times="adaptive",
        milliseconds=["ms"],
    )
    query = (
        changes.writeStream.format("abs-postgres")
        .options(url=os.environ["ABS_TEST_URL"], dbtable="copy", job="copy")
        .options(protocol="wal", write="changes", positions="side")
        .options(sequenceby="lsn", unchanged="unchanged")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
