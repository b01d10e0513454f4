"""``write=changes`` against what people do today: Spark's JDBC writer into a staging table, then MERGE.

Both apply the same micro-batches of updates in ``foreachBatch``. The other side promises less: a batch
that is replayed after a crash is merged again, and a late change overwrites a newer row unless MERGE
compares positions, as it does here; deletes leave no trace by which a late insert could be told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark users call it
from pyspark.sql.streaming.query import StreamingQuery

import abs_spark
from benchmarks.jobs import Input, Job
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.peers import nothing
from benchmarks.ratios import Bar
from benchmarks.report import Comparison, Result
from benchmarks.rows import SPARK_SCHEMA
from benchmarks.session import TASKS
from benchmarks.target import TABLE, Target

ROWS, EPOCHS, WARM_UP = 200_000, 3, 1
OURS, MERGE = "changes", "jdbc + merge"
FASTER = Bar(low=1.0)
STAGING = "bench_staging"

_MERGE = f"""
merge into {TABLE} t using (
    select distinct on (id) * from {STAGING} order by id, position desc
) s on t.id = s.id
when matched and s.op = 'd' and s.position > t.position then delete
when matched and s.position > t.position then
    update set name = s.name, score = s.score, at = s.at, position = s.position
when not matched and s.op <> 'd' then
    insert (id, name, score, at, position) values (s.id, s.name, s.score, s.at, s.position)
"""


Apply = Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True)
class MergeJob(Job):
    """The job, with what it does with each micro-batch of changes.

    Args:
        into: makes that, given the checkpoint.
    """

    into: Callable[[str], Apply] = lambda checkpoint: lambda batch, epoch: None

    def _start(self, checkpoint: str) -> StreamingQuery:
        apply = self.into(checkpoint)

        def each(batch: DataFrame, epoch: int) -> None:
            position = F.lit(epoch).cast("bigint")
            apply(batch.withColumn("op", F.lit("u")).withColumn("position", position), epoch)

        frames = self.spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", TASKS)
        writer = frames.parquet(str(self.input.folder)).writeStream.foreachBatch(each)
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def _ours(target: Target) -> Callable[[str], Apply]:
    how = {"protocol": "wal", "write": "changes", "sequenceby": "position"}
    sink = abs_spark.sink("abs-postgres", {**target.options, **how})
    return lambda checkpoint: abs_spark.epoch(sink, checkpointLocation=checkpoint)


def _merge(target: Target) -> Callable[[str], Apply]:
    given = {**target.jdbc, "dbtable": STAGING, "truncate": "true", "reWriteBatchedInserts": "true"}

    def apply(batch: DataFrame, epoch: int) -> None:
        batch.write.format("jdbc").options(**given).mode("overwrite").save()
        with psycopg.connect(target.url) as connection:
            connection.execute(_MERGE)

    return lambda checkpoint: apply


def run(
    spark: SparkSession,
    target: Target,
    scratch: Path,
    *,
    pairs: int,
    rows: int | None,
    tell: Tell,
) -> Result:
    """Compare the two on one table, which each run finds empty: the first epoch fills it, uncounted.

    Args:
        target: with a keyed table.
    """
    with psycopg.connect(target.url) as owner:
        owner.execute(f"alter table {TABLE} add column if not exists position bigint")
    given = Input.write(scratch, rows=rows or ROWS, epochs=EPOCHS)
    sides = {OURS: _ours(target), MERGE: _merge(target)}
    jobs = [
        Side(name, MergeJob(spark, target, given, nothing, stores=False, into=into).run)
        for name, into in sides.items()
    ]
    return Result(
        name="changes_vs_merge",
        unit="rows",
        samples=interleave(jobs, pairs=pairs, warm_up=WARM_UP, tell=tell),
        comparisons=[Comparison(OURS, MERGE, FASTER)],
        facts={"rows per epoch": f"{rows or ROWS:,}"},
        notes=("each counted epoch updates every row; wall is triggerExecution",),
    )
