"""Comparisons of whole Spark streaming jobs that differ in their sink only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

import abs_spark
from benchmarks import peers
from benchmarks.jobs import Attach, Input, Job
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.session import BATCHES_BY_ROWS
from benchmarks.stages import StageSource
from benchmarks.target import Target

ROWS = 1_000_000
EPOCHS = 3
"""Epochs that count in each run of a job."""

NOOP, TAKE, ENCODE, COMMIT = "noop", "take", "encode", "copy + commit"
OURS, WAL = "2pc", "wal"
BY_ROWS = "2pc, batches by rows"
JDBC, REWRITE = "jdbc", "jdbc, rewriting"

STORE_NOTHING = {NOOP, TAKE, ENCODE}
WARM_UP = 2

WITHIN_5_PERCENT = Bar(low=0.95)
TWICE = Bar(low=2.0)
FASTER = Bar(low=1.0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where jobs run: a session, a table, and a folder for their files."""

    spark: SparkSession
    target: Target
    scratch: Path


def exactly_once(place: Place, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """The job with our sink against the same job that commits each task's COPY on its own."""
    options = place.target.options
    sides: Mapping[str, Attach] = {
        OURS: peers.ours(options, "2pc"),
        COMMIT: peers.stage("commit", options),
        WAL: peers.ours(options, "wal"),
    }
    samples = _run(place, sides, pairs, rows, tell)
    return Result(
        name="exactly_once_vs_at_least_once",
        unit="rows",
        samples=samples,
        comparisons=[Comparison(OURS, COMMIT, WITHIN_5_PERCENT), Comparison(WAL, COMMIT)],
        facts={"rows per epoch": f"{rows or ROWS:,}", **_steps(samples)},
        notes=_NOTES,
    )


def spark_jdbc(place: Place, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """The job with our sink against Spark's JDBC writer, and against sinks that do less and less."""
    options, jdbc = place.target.options, place.target.jdbc
    sides: Mapping[str, Attach] = {
        OURS: peers.ours(options, "2pc"),
        BY_ROWS: peers.ours(options, "2pc"),
        REWRITE: peers.jdbc(jdbc, rewrite=True),
        JDBC: peers.jdbc(jdbc, rewrite=False),
        COMMIT: peers.stage("commit", options),
        ENCODE: peers.stage("encode", options),
        TAKE: peers.stage("take", options),
        NOOP: peers.nothing,
    }
    samples = _run(place, sides, pairs, rows, tell)
    return Result(
        name="spark_jdbc",
        unit="rows",
        samples=samples,
        comparisons=[
            Comparison(OURS, JDBC, TWICE),
            Comparison(OURS, REWRITE, FASTER),
            Comparison(BY_ROWS, JDBC),
            Comparison(BY_ROWS, OURS),
            Comparison(TAKE, OURS),
            Comparison(COMMIT, OURS),
        ],
        facts={"rows per epoch": f"{rows or ROWS:,}", **_steps(samples)},
        notes=_NOTES,
    )


_NOTES = (
    "wall is triggerExecution of the counted epochs; CPU is of the same, to the end of the query",
    "each side runs the same job in one session, warm; the first epoch of a run does not count",
)


def _run(
    place: Place, sides: Mapping[str, Attach], pairs: int, rows: int | None, tell: Tell
) -> Mapping[str, list[Sample]]:
    abs_spark.register(place.spark)
    place.spark.dataSource.register(StageSource)
    given = Input.write(place.scratch, rows=rows or ROWS, epochs=EPOCHS)
    jobs = [
        Side(
            name, Job(place.spark, place.target, given, attach, name not in STORE_NOTHING, conf).run
        )
        for name, attach in sides.items()
        for conf in [BATCHES_BY_ROWS if name == BY_ROWS else {}]
    ]
    return interleave(jobs, pairs=pairs, warm_up=WARM_UP, tell=tell)


_LADDER = (
    (NOOP, "read parquet, Spark's own work for an epoch"),
    (TAKE, "hand over to Python, planner and commit processes"),
    (ENCODE, "check and encode"),
    (COMMIT, "COPY and COMMIT"),
    (OURS, "marker, PREPARE, decide, COMMIT PREPARED, finish, sweep"),
)


def _steps(samples: Mapping[str, list[Sample]]) -> dict[str, str]:
    """What each step of the ladder adds to an epoch: medians over the rounds of the differences."""
    there = [(name, what) for name, what in _LADDER if name in samples]
    found = {}
    for (below, _), (name, what) in pairwise(there):
        found[f"{name} over {below} ({what})"] = _added(samples[name], samples[below])
    if NOOP in samples:
        walls = [sample.wall_s / EPOCHS for sample in samples[NOOP]]
        found[f"{NOOP} ({_LADDER[0][1]})"] = f"{median(walls) * 1e3:.0f} ms wall"
    return found


def _added(here: list[Sample], below: list[Sample]) -> str:
    pairs = list(zip(here, below, strict=True))
    wall = median((a.wall_s - b.wall_s) / EPOCHS for a, b in pairs)
    cpu = median((a.cpu_s - b.cpu_s) / EPOCHS for a, b in pairs)
    return f"{wall * 1e3:+.0f} ms wall, {cpu * 1e3:+.0f} ms CPU per epoch"
