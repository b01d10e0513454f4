"""A second driver: a process of its own, with its own JVM, that can be stopped, woken and killed.

``python -m benchmarks.scoreboard.second_driver`` reads settings, one JSON a line, runs the contestant's
query with each, and writes its error, if any, into the file ``ended`` of the settings.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from benchmarks.scoreboard import job
from benchmarks.scoreboard.trial import all_of, held, wait_for


class SecondDriver:
    """The process as the first driver sees it."""

    def __init__(self, pids: Path) -> None:
        """``pids`` gets the number of its process group, for whoever cleans up behind this process."""
        self._pids = pids
        self._process: subprocess.Popen[str] | None = None

    def start(self, given: job.Settings) -> None:
        """Begin a query, and return."""
        self.begin()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()

    def begin(self) -> None:
        """Start the process, which takes its time, if it does not run."""
        if self._process is None:
            command = [sys.executable, "-m", "benchmarks.scoreboard.second_driver"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, text=True, start_new_session=True
            )
            with self._pids.open("a") as file:
                file.write(f"{self._process.pid}\n")

    def ended(self, given: job.Settings) -> str:
        """The error of the query; empty, where it had none."""
        if not wait_for(given["ended"]):
            return "it did not end"
        return Path(given["ended"]).read_text()

    def stand_still(self) -> None:
        """Driver and JVM, which share a process group; Python's workers wait for the JVM."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)


def second_target(given: job.Settings) -> job.Settings:
    """The same contestant's other target, with names of its own; see ``situation_job.placed``."""
    names = ["table", "stage", "batches", "iceberg", "folder", "topic", "path", "checkpoint"]
    if not given["protocol"]:  # ours is one job for both
        names.append("job")
    return {**given, **{name: f"{given[name]}b" for name in names}}


def into_two(spark: SparkSession, given: job.Settings, hold: dict[str, Any] | None = None) -> None:
    """Write all that is there to two targets, the second one's rows held.

    Ours under one decision; a recipe one after the other, in one call of its function; a sink of
    Spark's by a query for each.
    """
    stop = partial(held, hold=hold) if hold else _as_it_is
    stream, other = job.read(spark, given), second_target(given)
    if given["protocol"]:
        queries = [job.start(ours_twice(stream, given, stop), given)]
    elif given["way"] in job.RECIPES:
        write = job.RECIPES[given["way"]]

        def both(batch: DataFrame, number: int) -> None:
            write(given, batch, number)
            write(other, stop(batch), number)

        queries = [job.start(stream.writeStream.foreachBatch(both), given)]
    else:
        way = job.WAYS[given["way"]]
        queries = [
            job.start(way(stream, given), given),
            job.start(way(stop(job.read(spark, other)), other), other),
        ]
    for query in queries:
        query.awaitTermination()


def _as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def ours_twice(
    stream: DataFrame, given: job.Settings, stop: Callable[[DataFrame], DataFrame]
) -> Any:
    import abs_spark

    first = given["way"].removeprefix("abs_")
    pairs = [(first, given), (first, second_target(given))]
    if first == "epoch":
        pairs = [("postgres", given), ("kafka", given), ("s3", given)]

    def rows(target: str, batch: DataFrame) -> DataFrame:
        return stop(batch).selectExpr(*job.MESSAGE) if target == "kafka" else stop(batch)

    sinks = [
        abs_spark.sink(
            f"abs-{target}",
            job.options_of(settings, target),
            name=f"{target}{number}",
            **(
                {"transform": partial(rows, target)}
                if number
                else {"select": job.MESSAGE if target == "kafka" else ()}
            ),
        )
        for number, (target, settings) in enumerate(pairs)
    ]
    place = given["checkpoint"]
    function = abs_spark.epoch(sinks, job=given["job"], checkpointLocation=place)
    return stream.writeStream.foreachBatch(function)


def main() -> None:
    given: job.Settings = json.loads(os.environ["ABS_SCOREBOARD"])
    spark = job.session(given)
    for line in sys.stdin:
        given = json.loads(line)
        error = ""
        try:
            if given["two"]:
                into_two(spark, given, given["hold"])
            else:
                job.write(held(job.read(spark, given), given["hold"]), given)
        except StreamingQueryException as failed:
            error = all_of(failed)
        ended = Path(given["ended"])
        ended.with_suffix(".new").write_text(error)
        ended.with_suffix(".new").rename(ended)
    # What still runs in the JVM does not keep this process.
    threading.Timer(5, os._exit, [0]).start()
    spark.stop()


if __name__ == "__main__":
    main()
