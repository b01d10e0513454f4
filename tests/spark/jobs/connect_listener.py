"""What ``abs_spark.listener`` and ``ABS_OBSERVE`` are told under Spark Connect, printed as JSON.

    SPARK_REMOTE=local[2] python connect_listener.py folder

As ``connect_epochs``. The server's observer writes a line for each epoch into the folder's ``told``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import abs_spark
from abs_core.events import Committed
from abs_spark.query_listener import QueryEnded
from tests.spark.jobs.connect_epochs import WORKER
from tests.spark.jobs.stream_files import WORKER_TRIES

TOLD = "ABS_TEST_TOLD"


def observer() -> Callable[[object], None]:
    """For ABS_OBSERVE: writes down what each epoch committed."""

    def tell(event: object) -> None:
        if isinstance(event, Committed):
            with Path(os.environ[TOLD]).open("a") as out:
                out.write(json.dumps([event.job, event.epoch, event.rows]) + "\n")

    return tell


def main() -> None:
    folder, url = Path(sys.argv[1]), os.environ["ABS_TEST_URL"]
    spark = SparkSession.builder.getOrCreate()
    assert "connect" in type(spark).__module__
    told: list[Any] = []
    ended = {name: threading.Event() for name in ("epoch", "format", "refused")}

    def tell(event: Any) -> None:
        if isinstance(event, QueryEnded):
            if WORKER not in str(event.why):
                told.append(event)
                ended[event.job].set()
        else:
            told.append(event)

    listener = abs_spark.listener(tell)
    spark.streams.addListener(listener)
    reader = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", "1")
    rows = reader.json(str(folder / "in"))

    def run(name: str, writer: Any) -> None:
        writer = writer.queryName(name).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        for _ in range(WORKER_TRIES):
            try:
                writer.start().awaitTermination()
            except PySparkException as error:
                print(f"{name}: {error}")
                if WORKER not in str(error):
                    return
            else:
                return

    def epoch(name: str) -> Any:
        sink = abs_spark.sink("abs-postgres", {"url": url, "dbtable": name, "protocol": "wal"})
        checkpoint = str(folder / f"checkpoint-{name}")
        function = abs_spark.epoch([sink], job=f"job-{name}", checkpointLocation=checkpoint)
        return rows.writeStream.foreachBatch(function)

    options = {"url": url, "dbtable": "format", "protocol": "wal", "job": "job-format"}
    try:
        run("epoch", epoch("epoch"))
        run("format", rows.writeStream.format("abs-postgres").options(**options))
        run("refused", epoch("refused"))
        for name, each in ended.items():
            assert each.wait(60), f"nobody told that {name} has ended: {told}"
    finally:
        spark.streams.removeListener(listener)  # its thread would keep this program alive
        listener.close()
    events = [[type(event).__name__, asdict(event)] for event in told]
    print(json.dumps(["events", events]))
    spark.stop()


if __name__ == "__main__":
    main()
