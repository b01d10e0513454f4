"""Writes of one's own under Spark Connect, one after the other in one session.

    SPARK_REMOTE=local[2] python connect_once.py folder

The folder has an input folder ``in`` with JSON files of accounts and amounts; targets are SQLite
databases in it. What became of each step is printed as a line of JSON: its name, and the error that it
ended with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import abs_spark
from abs_core.errors import AbsError
from tests.spark.jobs.connect_epochs import WORKER
from tests.spark.jobs.own_write import recipe
from tests.spark.jobs.stream_files import WORKER_TRIES

SCHEMA = "account bigint, amount bigint"


def main() -> None:
    folder = Path(sys.argv[1])
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    assert "connect" in type(spark).__module__
    ids = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    rows = ids.json(str(folder / "in"))

    def told(name: str, step: Callable[[], None]) -> None:
        error: str | None = WORKER
        for _ in range(WORKER_TRIES):
            if error is None or WORKER not in error:
                break
            try:
                step()
                error = None
            except (AbsError, PySparkException) as raised:
                error = str(raised)
        print(json.dumps([name, error]))

    def stream(job: str, frame: Any, checkpoint: str, *, fails: bool = False) -> Callable[[], None]:
        write, applied = recipe("sqlite_upsert", str(folder / f"{job}.db"))

        def late(df: Any, token: Any) -> None:
            write(df, token)
            if fails:
                raise ConnectionError("the reply is lost")

        given: dict[str, Any] = {
            "applied": applied,
            "register": str(folder / "register"),
            "job": job,
        }
        function = abs_spark.once(late, checkpointLocation=checkpoint, **given)
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)

        def run() -> None:
            writer.trigger(availableNow=True).start().awaitTermination()

        return run

    at = str(folder / "checkpoint")
    told("first", stream("own", rows, at))
    for file in Path(at, "commits").glob("*1*"):
        file.unlink()  # as if Spark had died before it noted the second batch
    told("replayed", stream("own", rows, at))
    told("stateful", stream("state", rows.dropDuplicates(["account", "amount"]), f"{at}-state"))
    told("lost reply", stream("reply", rows, f"{at}-reply", fails=True))
    told("another's", stream("own", rows, f"{at}-new"))

    write, applied = recipe("sqlite_upsert", str(folder / "days.db"))
    given: dict[str, Any] = {
        "applied": applied,
        "register": str(folder / "register"),
        "job": "days",
    }
    day = spark.createDataFrame([(1, 10), (2, 20)], SCHEMA)
    for name, frame in (("day", day), ("day again", day), ("another day", day.limit(1))):
        told(name, partial(abs_spark.once(write, epoch="monday", **given), frame))
    spark.stop()


if __name__ == "__main__":
    main()
