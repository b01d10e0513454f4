"""An example job: Parquet files -> Spark Structured Streaming -> a sink of ours, until none is left.

    python stream_files.py settings.json

``settings.json`` holds the fields of ``Job``. The sink's option ``url`` comes from the environment
variable ``ABS_TEST_URL``, where there is one: a command line and a file can be read by others.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

WORKER_TRIES = 5

SCHEMA = "id bigint, word string, at timestamp"


@dataclass(frozen=True)
class Job:
    """What to run.

    Args:
        options: of the sink, without its credentials.
        continuous: run until stopped, epoch after epoch, instead of until the files are read.
        scramble: rows go to partitions at random, so that a replay partitions them otherwise.
        tasks: partitions of each epoch; 0 leaves that to the source.
        select: expressions of the rows that are written; none: the source's columns.
        source: another format to read than Parquet files, with ``source_options``.
        attempts: how often a task is tried.
        conf: more of Spark's settings.
        before: Python lines that get the session as ``spark`` before the query begins.
        sinks: written to under one decision, each the arguments of ``abs_spark.sink``; then ``format``
            and ``options`` do not count, but for the option ``job``.
    """

    input: str
    checkpoint: str
    scratch: str
    format: str = "abs-postgres"
    options: dict[str, str] = field(default_factory=dict)
    files_per_epoch: int = 1
    continuous: bool = False
    scramble: bool = False
    tasks: int = 0
    select: list[str] = field(default_factory=list)
    source: str | None = None
    source_options: dict[str, str] = field(default_factory=dict)
    attempts: int = 1
    sinks: list[dict[str, Any]] = field(default_factory=list)
    conf: dict[str, str] = field(default_factory=dict)
    before: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def start(spark: SparkSession, job: Job, url: str | None = None) -> StreamingQuery:
    """Start the job's query."""
    rows = _rows(spark, job)
    if job.scramble:
        rows = rows.repartition(job.tasks or 2, f.rand())
    elif job.tasks:
        rows = rows.repartition(job.tasks, "id")
    if job.select:
        rows = rows.selectExpr(*job.select)
    writer = _into_sinks(rows, job, url) if job.sinks else _into_one(rows, job, url)
    writer = writer.option("checkpointLocation", job.checkpoint)
    if job.continuous:
        return writer.trigger(processingTime="0 seconds").start()
    return writer.trigger(availableNow=True).start()


def run_to_end(spark: SparkSession, job: Job, url: str | None = None) -> None:
    """Start the job's query and wait for its end; see ``ended``."""
    ended(lambda: start(spark, job, url))


def ended(begin: Callable[[], StreamingQuery]) -> None:
    """Begin a query and wait for its end; again where Spark had no Python worker in time.

    Spark gives a worker 10 seconds to start and no setting changes that: a busy machine takes longer.
    """
    for left in reversed(range(WORKER_TRIES)):
        try:
            begin().awaitTermination()
        except StreamingQueryException as error:
            if left == 0 or "failed to connect back" not in str(error):
                raise
        else:
            return


def _into_one(rows: DataFrame, job: Job, url: str | None) -> DataStreamWriter:
    writer = rows.writeStream.format(job.format).options(**job.options)
    return writer if url is None else writer.option("url", url)


def _into_sinks(rows: DataFrame, job: Job, url: str | None) -> DataStreamWriter:
    import abs_spark

    sinks = []
    for given in job.sinks:
        own = {"url": url} if given["format"] == "abs-postgres" and url is not None else {}
        sinks.append(abs_spark.sink(**{**given, "options": {**given["options"], **own}}))
    name = job.options.get("job")
    return rows.writeStream.foreachBatch(
        abs_spark.epoch(sinks, job=name, checkpointLocation=job.checkpoint)
    )


def _rows(spark: SparkSession, job: Job) -> DataFrame:
    if job.source is not None:
        return spark.readStream.format(job.source).options(**job.source_options).load()
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", job.files_per_epoch)
    return files.parquet(job.input)


def main() -> int:
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    import pyspark

    from tests.spark.jobs.session import small_session

    print(f"PySpark {pyspark.__version__}")

    conf = {"spark.master": f"local[2,{job.attempts}]", **job.conf}
    spark = small_session(Path(job.scratch), **conf)
    if job.format == "abs-folder":
        from tests.spark.jobs.folder_sink import FolderDataSource

        spark.dataSource.register(FolderDataSource)
    exec(job.before, {"spark": spark})
    try:
        run_to_end(spark, job, os.environ.get("ABS_TEST_URL"))
    except StreamingQueryException as error:
        print(f"QUERY FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
