"""Run by a test: a query that is stopped in the middle of an epoch, in one of several ways.

    python stopped.py SETTINGS.json

Some of its two tasks do not end as long as the file ``gate`` is there; the query is stopped when the
file ``stop`` is there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.jobs.stream_files import SCHEMA

WAYS = ("query.stop()", "spark.stop()", "the driver ends")
TERMINATED, NOT_REGISTERED = "SIGTERM", "spark.stop() without register"
OTHER_THREAD = "a child ends first and another thread last"
ROUTES = ("format", "epoch")


@dataclass(frozen=True)
class Held:
    """The query.

    Args:
        folder: has ``input``, ``checkpoint``, ``gate`` and ``stop``.
        format: of the sink.
        options: of the sink.
        route: one of ``ROUTES``.
        way: one of ``WAYS``, or another; how a driver of its own ends.
        tasks: numbers of those that the gate holds.
        large: whether rows are so large that the sink sends them before its task ends.
    """

    folder: str
    format: str
    options: dict[str, str]
    job: str
    route: str = ROUTES[0]
    way: str = WAYS[0]
    tasks: tuple[int, ...] = (1,)
    large: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def start(spark: SparkSession, held: Held, *, once: bool) -> StreamingQuery:
    """Start the query; to the end of its input only where ``once``."""
    folder = Path(held.folder)
    gate = folder / "gate"

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _large(batch) if held.large else batch
        context = TaskContext.get()
        while context is not None and context.partitionId() in held.tasks and gate.exists():
            time.sleep(0.05)

    # So that the sink gets rows before the task that makes them has ended.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1)
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = files.parquet(str(folder / "input")).repartition(2).mapInArrow(hold, SCHEMA)
    if held.format == "abs-kafka":
        key, value = f.col("id").cast("string").alias("key"), f.col("word").alias("value")
        rows = rows.select(key, value)
    checkpoint = str(folder / "checkpoint")
    if held.route == "epoch":
        import abs_spark

        sink = abs_spark.sink(held.format, held.options)
        function = abs_spark.epoch(sink, job=held.job, checkpointLocation=checkpoint)
        writer = rows.writeStream.foreachBatch(function)
    else:
        given = {**held.options, "job": held.job}
        writer = rows.writeStream.format(held.format).options(**given)
    writer = writer.option("checkpointLocation", checkpoint)
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="0 seconds").start()


def _large(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with words of 900 kB that cannot be compressed."""
    words = [b64encode(os.urandom(675_000)).decode() for _ in range(batch.num_rows)]
    return batch.set_column(batch.schema.get_field_index("word"), "word", pa.array(words))


def main() -> None:
    held = Held(**json.loads(Path(sys.argv[1]).read_text()))
    from tests.spark.jobs.session import small_session

    spark = small_session(Path(held.folder) / "scratch", **{"spark.master": "local[2]"})
    if held.way != NOT_REGISTERED:
        import abs_spark

        abs_spark.register(spark)  # as the guide says: queries are stopped before all ends
    query = start(spark, held, once=False)
    if held.way == TERMINATED:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        query.awaitTermination()
    if held.way == OTHER_THREAD:
        threading.Thread(target=wait, args=(query, held)).start()
        child = multiprocessing.get_context("fork").Process(target=print)
        child.start()
        child.join()
        return
    wait(query, held)
    if held.way == WAYS[0]:
        query.stop()
    if held.way != WAYS[2]:
        spark.stop()


def wait(query: StreamingQuery, held: Held) -> None:
    while not (Path(held.folder) / "stop").exists():
        if not query.isActive:
            raise RuntimeError(f"the query has ended: {query.exception()}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
