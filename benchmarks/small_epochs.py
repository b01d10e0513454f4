"""What a small epoch takes: to one target, to another, to three under one decision.

Most streams are small: what is paid per epoch is all there is. All sides run the same job, in one
session, one after the other in turns. An epoch's time is ``triggerExecution`` of its progress, most of
which is Spark's own: its offset log, its commit log, its planning.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_services import KafkaService
from abs_spark.foreach.spec import EpochSink
from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.rows import COLUMNS, SPARK_SCHEMA, write_epochs
from benchmarks.s3_folder import Folder
from benchmarks.target import TABLE, Target

SIZES = (10_000, 1_000)
"""Rows of an epoch, one result for each."""
EPOCHS, UNCOUNTED, FILES = 30, 10, 2
NOOP, EMPTY, JDBC, MERGE = "noop", "empty mapInArrow", "jdbc", "merge"
POSTGRES, KAFKA, S3, THREE = "postgres", "kafka", "s3", "all three"
OURS = (POSTGRES, KAFKA, S3, THREE)
TOGETHER = 1.1
"""What an epoch to three targets may take of the three's times, with Spark's own counted once."""
AS_MERGE, OF_ONE = Bar(low=1.0), Bar(low=0.8)
"""What one target must reach of a MERGE, and three targets of PostgreSQL alone."""
WARM_UP = 1
NAME = "small_epochs"
_MS = "triggerExecution"

Batch = Callable[[DataFrame, int], None]
Sinks = Callable[[str], Batch]
"""What a side does with each micro-batch, given its checkpoint."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the sinks write to."""

    target: Target
    kafka: KafkaService
    topic: str
    folder: Folder

    def sides(self) -> dict[str, Sinks | None]:
        """Every side by name; None: Spark's ``noop``."""
        select = ["cast(id as string) as key", "to_json(struct(*)) as value"]
        kafka = {"kafka.bootstrap.servers": self.kafka.bootstrap, "topic": self.topic}
        postgres = {"url": self.target.url, "dbtable": TABLE}
        payments = abs_spark.sink("abs-postgres", postgres, name=POSTGRES)
        alerts = abs_spark.sink("abs-kafka", kafka, name=KAFKA, select=select)
        items = abs_spark.sink("abs-s3", self.folder.options, name=S3)
        return {
            NOOP: None,
            EMPTY: lambda checkpoint: take_rows,
            JDBC: lambda checkpoint: _jdbc(self.target.jdbc),
            MERGE: lambda checkpoint: _merge(self.target),
            POSTGRES: _ours(payments),
            KAFKA: _ours(alerts),
            S3: _ours(items),
            THREE: _ours(payments, alerts, items),
        }


@dataclass(frozen=True, slots=True)
class SmallJob:
    """One side: the job, from its first epoch to its last, with a checkpoint and a job of its own."""

    spark: SparkSession
    input: Path
    into: Sinks | None
    rows: int

    def run(self) -> Sample:
        with tempfile.TemporaryDirectory(dir=self.input.parent) as checkpoint, metered() as taken:
            frames = self.spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", FILES)
            writer = frames.parquet(str(self.input)).writeStream
            if self.into is None:
                writer = writer.format("noop")
            else:
                writer = writer.foreachBatch(self.into(checkpoint))
            writer = writer.option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        progress = [p for p in query.recentProgress if p["numInputRows"]]
        if [p["numInputRows"] for p in progress] != [self.rows] * (UNCOUNTED + EPOCHS):
            raise AssertionError(f"not {UNCOUNTED + EPOCHS} epochs of {self.rows} rows: {progress}")
        spent = [p["durationMs"][_MS] / 1e3 for p in progress[UNCOUNTED:]]
        parts = (("p50", median(spent)), ("p99", quantiles(spent, n=100, method="inclusive")[98]))
        return Sample(sum(spent), taken.cpu_s, EPOCHS, parts)


def run(
    spark: SparkSession, places: Places, scratch: Path, *, pairs: int, rows: int | None, tell: Tell
) -> Iterator[Result]:
    """All sides in turns; what each adds to the empty ``mapInArrow``."""
    for size in SIZES if rows is None else [rows]:
        name = NAME if size == SIZES[0] else f"{NAME}, {size:,} rows"
        yield _of_size(spark, places, scratch / f"small-{size}", name, size, pairs, tell)


def _of_size(
    spark: SparkSession, places: Places, folder: Path, name: str, size: int, pairs: int, tell: Tell
) -> Result:
    write_epochs(folder, rows=size, files=FILES, epochs=UNCOUNTED + EPOCHS, distinct=True)
    sides = [
        Side(side, SmallJob(spark, folder, into, size).run) for side, into in places.sides().items()
    ]
    samples = interleave(sides, pairs=pairs, warm_up=WARM_UP, tell=tell)
    return Result(
        name=name,
        unit="epochs",
        samples=samples,
        comparisons=[
            *(Comparison(side, EMPTY) for side in (*OURS, JDBC)),
            *(Comparison(side, MERGE, AS_MERGE) for side in (POSTGRES, KAFKA, S3)),
            Comparison(THREE, POSTGRES, OF_ONE),
        ],
        facts=facts(samples),
        notes=(
            f"{size} rows an epoch, {EPOCHS} epochs that count in each run, after {UNCOUNTED}",
            "wall is triggerExecution; CPU is of the whole run, its start included",
        ),
    )


def facts(samples: Mapping[str, Sequence[Sample]]) -> dict[str, str]:
    """p50 and p99 of each side, what each adds, and what three together take."""
    p50 = {name: [dict(s.parts)["p50"] * 1e3 for s in runs] for name, runs in samples.items()}
    p99 = {name: [dict(s.parts)["p99"] * 1e3 for s in runs] for name, runs in samples.items()}
    found = {
        f"{name}: p50, p99": f"{median(p50[name]):.0f} ms, {median(p99[name]):.0f} ms"
        for name in samples
    }
    for name in OURS:
        added = median(a - b for a, b in zip(p50[name], p50[EMPTY], strict=True))
        found[f"{name} over {EMPTY}"] = f"{added:+.0f} ms"
    together = median(
        three / (one + two + other - 2 * empty)
        for three, one, two, other, empty in zip(
            p50[THREE], p50[POSTGRES], p50[KAFKA], p50[S3], p50[EMPTY], strict=True
        )
    )
    kept = "kept" if together <= TOGETHER else "MISSED"
    found["T(3) / (T1 + T2 + T3 - 2 T(empty))"] = f"{together:.2f} ({TOGETHER}: {kept})"
    return found


def _ours(*sinks: EpochSink) -> Sinks:
    def into(checkpoint: str) -> Batch:
        job = f"bench-{secrets.token_hex(6)}"
        return abs_spark.epoch(list(sinks), job=job, checkpointLocation=checkpoint)

    return into


def take_rows(batch: DataFrame, _: int) -> None:
    batch.mapInArrow(_nothing, "rows bigint").collect()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


def _jdbc(options: Mapping[str, Any]) -> Batch:
    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("jdbc").options(**options).mode("append").save()

    return write


def _merge(target: Target) -> Batch:
    """Rows to a staging table by JDBC, then one MERGE by key: a recipe that writes a row once."""
    staged, merged = "bench_staged", "bench_merged"
    given = {**target.jdbc, "dbtable": staged, "truncate": "true"}
    with psycopg.connect(target.url) as connection:
        connection.execute(f"drop table if exists {merged}")
        connection.execute(f"create table {merged} ({COLUMNS}, primary key (id))")

    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("jdbc").options(**given).mode("overwrite").save()
        with psycopg.connect(target.url) as connection:
            connection.execute(
                f"merge into {merged} t using {staged} s on t.id = s.id "
                "when matched then update set name = s.name, score = s.score, at = s.at "
                "when not matched then insert values (s.id, s.name, s.score, s.at)"
            )

    return write
