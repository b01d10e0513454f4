"""A query that is stopped in the middle of a batch leaves nothing open; its restart is exactly once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from abs_clients.kafka.cluster import close_clusters
from abs_services import KafkaService
from abs_spark.kafka import KafkaDataSource
from tests.spark.bucket import Bucket
from tests.spark.drivers import until
from tests.spark.jobs.stream_files import SCHEMA
from tests.spark.kafka_world import opened
from tests.spark.test_spark_s3 import put_file
from tests.spark.world import JOB, World

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.campaign,
    pytest.mark.timeout(1800),
]


@dataclass(frozen=True)
class Aim:
    """A target, and how it is looked at.

    Args:
        options: of the sink.
        left: what it holds for the job that is not committed.
        ids: the ids that a reader gets, each as often as it is there.
    """

    format: str
    options: dict[str, str]
    left: Callable[[], Sequence[object]]
    ids: Callable[[], Counter[int]]


@pytest.fixture(params=["kafka", "postgres", "s3"])
def aim(request: pytest.FixtureRequest) -> Iterator[Aim]:
    if request.param == "kafka":
        yield from _kafka(request.getfixturevalue("kafka"))
    elif request.param == "postgres":
        world: World = request.getfixturevalue("new_world")("2pc")
        options = {**world.job.options, "url": world.url}

        def ids() -> Counter[int]:
            return Counter(row[0] for row in world.rows().elements())

        yield Aim("abs-postgres", options, world.left_behind, ids)
    else:
        bucket: Bucket = request.getfixturevalue("bucket")
        yield Aim("abs-s3", {**bucket.options, "job": JOB}, bucket.in_doubt, bucket.ids)


def _kafka(kafka: KafkaService) -> Iterator[Aim]:
    kafka.start()
    with opened(kafka.bootstrap, "2pc") as target:
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": target.topic,
            "registertopic": target.options.registertopic,
            "job": JOB,
        }

        def ids() -> Counter[int]:
            assert target.hidden() == 0, "a reader stands still before the end of the topic"
            return Counter(int(key or b"") for key, _ in target.records())

        yield Aim("abs-kafka", options, lambda: target.leftovers(JOB), ids)
    close_clusters()


def test_a_query_stopped_within_a_batch_leaves_nothing_open(
    aim: Aim, spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(KafkaDataSource)
    gate, done = tmp_path / "gate", tmp_path / "checkpoint" / "commits" / "0"
    expected = put_file(tmp_path / "input", 0)
    query = _start(spark, aim, tmp_path, once=False)
    until(lambda: done.exists() or not query.isActive, "the first epoch is done", every=0.1)
    assert query.isActive, query.exception()
    gate.touch()
    expected += put_file(tmp_path / "input", 1)
    # One of its two tasks has pre-committed, the other one goes on writing.
    until(lambda: bool(aim.left()), "a task of the second epoch has pre-committed", every=0.1)
    query.stop()
    until(lambda: not aim.left(), "what the query had open is ended", every=0.1)
    assert aim.ids() == Counter(expected[: len(expected) // 2])
    gate.unlink()
    _start(spark, aim, tmp_path, once=True).awaitTermination()
    assert aim.ids() == Counter(expected)
    assert not aim.left()


def _start(spark: SparkSession, aim: Aim, folder: Path, *, once: bool) -> StreamingQuery:
    gate = folder / "gate"

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The second task does not end as long as the gate is there."""
        yield from batches
        context = TaskContext.get()
        while context is not None and context.partitionId() == 1 and gate.exists():
            time.sleep(0.05)

    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = files.parquet(str(folder / "input")).repartition(2).mapInArrow(hold, SCHEMA)
    if aim.format == "abs-kafka":
        key, value = f.col("id").cast("string").alias("key"), f.col("word").alias("value")
        rows = rows.select(key, value)
    writer = rows.writeStream.format(aim.format).options(**aim.options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="0 seconds").start()
