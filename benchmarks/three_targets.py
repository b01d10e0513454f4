"""What one query to three targets takes: against each target alone, and against three queries.

Three queries over the same source were the only way to write to three targets: each reads, parses and
hands over every row again. All sides run in one session, in turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Sample
from benchmarks.report import Comparison, Result
from benchmarks.rows import SPARK_SCHEMA, write_epochs
from benchmarks.small_epochs import EMPTY, KAFKA, POSTGRES, S3, THREE, TOGETHER, Places, Sinks

ROWS, EPOCHS, FILES = 100_000, 6, 2
QUERIES = "three queries"
WARM_UP = 1


@dataclass(frozen=True, slots=True)
class Queries:
    """One side: queries over the same files, all at once, from their starts to their ends.

    Args:
        places: opens targets for one run: a test server has room for some.
        names: of the sides of ``Places`` that the queries write to, one for each query.
    """

    spark: SparkSession
    input: Path
    places: Callable[[], AbstractContextManager[Places]]
    names: Sequence[str]
    rows: int

    def run(self) -> Sample:
        with tempfile.TemporaryDirectory(dir=self.input.parent) as folder, self.places() as places:
            made = [into for name in self.names if (into := places.sides()[name]) is not None]
            with metered() as taken:
                started = [self._start(f"{folder}/{n}", into) for n, into in enumerate(made)]
                for query in started:
                    query.awaitTermination()
        for query in started:
            read = sum(progress["numInputRows"] for progress in query.recentProgress)
            if read != self.rows * EPOCHS:
                raise AssertionError(f"a query read {read} rows of {self.rows * EPOCHS}")
        return Sample(taken.wall_s, taken.cpu_s, self.rows * EPOCHS)

    def _start(self, checkpoint: str, into: Sinks) -> StreamingQuery:
        frames = self.spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", FILES)
        writer = frames.parquet(str(self.input)).writeStream.foreachBatch(into(checkpoint))
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def run(
    spark: SparkSession,
    places: Callable[[], AbstractContextManager[Places]],
    scratch: Path,
    *,
    pairs: int,
    rows: int | None,
    tell: Tell,
) -> Result:
    """All sides in turns."""
    folder, epoch = scratch / "three", (rows or ROWS * EPOCHS) // EPOCHS
    write_epochs(folder, rows=epoch, files=FILES, epochs=EPOCHS)
    chosen: dict[str, list[str]] = {name: [name] for name in (EMPTY, POSTGRES, KAFKA, S3, THREE)}
    chosen[QUERIES] = [POSTGRES, KAFKA, S3]
    sides = [
        Side(name, Queries(spark, folder, places, names, epoch).run)
        for name, names in chosen.items()
    ]
    samples = interleave(sides, pairs=pairs, warm_up=WARM_UP, tell=tell)
    return Result(
        name="three_targets",
        unit="rows",
        samples=samples,
        comparisons=[Comparison(THREE, QUERIES)],
        facts=facts(samples),
        notes=(
            f"{epoch} rows an epoch, {EPOCHS} epochs a run; wall and CPU of the whole run",
            f"all sides by abs_spark.epoch in one session; {QUERIES}: one for each target, at once",
        ),
    )


def facts(samples: Mapping[str, Sequence[Sample]]) -> dict[str, str]:
    """What three together take of the three's times, with what none of them causes counted once."""
    wall = {name: [sample.wall_s for sample in runs] for name, runs in samples.items()}
    together = median(
        three / (one + two + other - 2 * empty)
        for three, one, two, other, empty in zip(
            *(wall[name] for name in (THREE, POSTGRES, KAFKA, S3, EMPTY)), strict=True
        )
    )
    kept = "kept" if together <= TOGETHER else "MISSED"
    return {"T(3) / (T1 + T2 + T3 - 2 T(empty))": f"{together:.2f} ({TOGETHER}: {kept})"}
