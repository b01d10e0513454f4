"""Queries under Spark Connect, each by ``abs_spark.epoch``, one after the other in one session.

    SPARK_REMOTE=local[2] python connect_epochs.py folder

The folder has an input folder ``in`` with two JSON files of ids; the database is ``ABS_TEST_URL``'s.
What became of each query is printed as a line of JSON: its name, and the error that it ended with.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

import abs_spark
from tests.spark.jobs.stream_files import WORKER_TRIES

WORKER = "failed to connect back"
"""A worker that a busy machine has not started in Spark's 10 seconds."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""``transformWithState`` keeps its state in nothing else."""
COUNTED = StructType([StructField("id", LongType()), StructField("n", LongType())])
WINDOW = ["id", "cast(row_number() over (order by id) as bigint) as n"]
SHARED = [("all", ["id", "id * 2 as n"], None), ("small", ["*", "id as n"], "id < 12")]


class Count(StatefulProcessor):
    """How many rows of its key have come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N803
        before = self._seen.get()
        seen = (0 if before is None else before[0]) + sum(1 for _ in rows)
        self._seen.update((seen,))
        yield Row(id=key[0], n=seen)

    def close(self) -> None:
        pass


def main() -> None:
    folder, url = Path(sys.argv[1]), os.environ["ABS_TEST_URL"]
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    assert "connect" in type(spark).__module__
    ids = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", "1")
    rows = ids.json(str(folder / "in"))
    counts = rows.groupBy((rows.id % 3).alias("id")).count().withColumnRenamed("count", "n")
    single = rows.dropDuplicates(["id"]).selectExpr("id", "id as n")

    def run(name: str, frame: Any, mode: str, *sinks: Any, **more: Any) -> None:
        checkpoint = str(folder / f"checkpoint-{name}")
        function = abs_spark.epoch(list(sinks), job=name, checkpointLocation=checkpoint, **more)
        writer = frame.writeStream.outputMode(mode).foreachBatch(function)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        error: str | None = WORKER
        for _ in range(WORKER_TRIES):
            try:
                writer.start().awaitTermination()
            except PySparkException as raised:
                error = str(raised)
            else:
                error = None
            if error is None or WORKER not in error:
                break
        print(json.dumps([name, error]))

    def table(name: str, of: Mapping[str, str] | None = None, **more: Any) -> Any:
        options = {"url": url, "dbtable": name, "protocol": "wal", **(of or {})}
        return abs_spark.sink("abs-postgres", options, name=name, **more)

    keyed = rows.selectExpr("id % 3 as id").groupBy("id")
    running = keyed.transformWithState(Count(), COUNTED, "Update", "None")
    by_key = table("running", {"write": "upsert", "key": "id"})

    run("untold", counts, "complete", table("untold"))
    run("counts", counts, "complete", table("counts"), outputMode="complete")
    run("running", running, "update", by_key, outputMode="update")
    run("single", single, "append", table("single"), outputMode="append")
    run("shared", rows, "append", *(table(n, select=s, where=w) for n, s, w in SHARED))
    run("window", rows, "append", table("refused", select=WINDOW), table("beside"))
    run("total", rows, "append", table("refused", select=["sum(id) as id"]))
    run("exploded", rows, "append", table("refused", select=["explode(array(id, id)) as id"]))
    spark.stop()


if __name__ == "__main__":
    main()
