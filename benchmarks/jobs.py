"""A whole streaming job, from parquet files to a sink, timed by Spark's own account of its epochs.

All sides run the same job: same session, same files, same two tasks, ``availableNow``; only the sink
differs. The first epoch of each run is not counted: it pays for planning and for the register's
start. An epoch's time is ``triggerExecution`` of its progress: from asking the source for new files to
the commit of the epoch, Spark's own logs included.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.meter import metered
from benchmarks.ratios import Sample
from benchmarks.rows import SPARK_SCHEMA, write_epochs
from benchmarks.session import TASKS
from benchmarks.target import Target

UNCOUNTED = 1
"""Epochs at the start of each run that are not counted."""

_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Input:
    """Parquet files for ``UNCOUNTED + epochs`` epochs of ``rows`` rows each."""

    folder: Path
    rows: int
    epochs: int

    @classmethod
    def write(cls, scratch: Path, *, rows: int, epochs: int) -> Input:
        folder = Path(tempfile.mkdtemp(dir=scratch)) / "input"
        write_epochs(folder, rows=rows, files=TASKS, epochs=UNCOUNTED + epochs)
        return cls(folder, rows, epochs)


Attach = Callable[[DataStreamWriter], DataStreamWriter]
"""Gives a job its sink."""


@dataclass(frozen=True, slots=True)
class Job:
    """One side: the job with one sink.

    Args:
        stores: whether its rows are in the target at the end.
        conf: settings of the session while it runs.
    """

    spark: SparkSession
    target: Target
    input: Input
    attach: Attach
    stores: bool = True
    conf: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> Sample:
        """Run the job to its end on an emptied table."""
        self.target.reset()
        for key, value in self.conf.items():
            self.spark.conf.set(key, value)
        with tempfile.TemporaryDirectory(dir=self.input.folder.parent) as checkpoint:
            query = self._start(checkpoint)
            _await_uncounted(query)
            with metered(self.target.pid) as taken:
                query.awaitTermination()
        for key in self.conf:
            self.spark.conf.unset(key)
        progress = [p for p in query.recentProgress if p["numInputRows"]]
        self._check(progress)
        spent = [p["durationMs"] for p in progress[UNCOUNTED:]]
        seconds = sum(ms["triggerExecution"] for ms in spent) / 1e3
        parts = [(name, fmean(ms.get(name, 0) for ms in spent) / 1e3) for name in sorted(spent[0])]
        return Sample(seconds, taken.cpu_s, self.input.rows * len(spent), tuple(parts))

    def _start(self, checkpoint: str) -> StreamingQuery:
        frames = (
            self.spark.readStream.schema(SPARK_SCHEMA)
            .option("maxFilesPerTrigger", TASKS)
            .parquet(str(self.input.folder))
        )
        writer = self.attach(frames.writeStream)
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    def _check(self, progress: Sequence[Mapping[str, Any]]) -> None:
        epochs = UNCOUNTED + self.input.epochs
        if [p["numInputRows"] for p in progress] != [self.input.rows] * epochs:
            raise AssertionError(f"not {epochs} epochs of {self.input.rows} rows: {progress}")
        if self.stores and (found := self.target.count()) != epochs * self.input.rows:
            raise AssertionError(f"{found} rows in the table, not {epochs * self.input.rows}")


def _await_uncounted(query: StreamingQuery) -> None:
    """Returns when the epochs that do not count are over: CPU is metered from here on.

    Looks every few milliseconds; where all epochs are over by then, CPU is not known and near 0.
    """
    while query.isActive:
        last = query.lastProgress
        if last is not None and last["batchId"] >= UNCOUNTED - 1:
            return
        time.sleep(_LOOK_S)
