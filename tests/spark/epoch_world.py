"""Three targets that one query writes to, and how tests look at what has become of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import abs_spark
from abs_core.model import JobState
from abs_sinks.postgres import PostgresOptions, PostgresRegister
from abs_spark.foreach.function import Epoch
from abs_spark.foreach.spec import EpochSink
from tests.kit.kafka import TopicHarness
from tests.spark.bucket import Bucket
from tests.spark.jobs.stream_files import Job
from tests.spark.world import World

SCHEMA = "id bigint, word string, at timestamp"
JOB = "job"


@dataclass
class EpochWorld:
    """PostgreSQL, Kafka and S3, each with an empty target of this test's own.

    Args:
        files: makes input files, and has the database and its table.
    """

    files: World
    kafka: TopicHarness
    bucket: Bucket
    postgres_options: dict[str, str] = field(default_factory=dict)
    kafka_options: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.files.checkpoint

    def postgres(self, **more: Any) -> EpochSink:
        given = {"url": self.files.url, "dbtable": "t", **self.postgres_options}
        return abs_spark.sink("abs-postgres", given, name="payments", **more)

    def to_kafka(self, **more: Any) -> EpochSink:
        given = {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "topic": self.kafka.topic,
            "registertopic": self.kafka.options.registertopic,
            **self.kafka_options,
        }
        select = ["cast(id as string) as key", "cast(id as string) as value"]
        return abs_spark.sink("abs-kafka", given, name="alerts", **{"select": select, **more})

    def to_s3(self, **more: Any) -> EpochSink:
        return abs_spark.sink("abs-s3", self.bucket.options, name="items", **more)

    def epoch(self, *sinks: EpochSink, **more: Any) -> Epoch:
        chosen = sinks or (self.postgres(), self.to_kafka(), self.to_s3())
        given = {"job": JOB, "checkpointLocation": str(self.checkpoint), **more}
        return abs_spark.epoch(list(chosen), **given)

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
        return reader.parquet(self.files.job.input)

    def start(self, spark: SparkSession, function: Any, **options: str) -> StreamingQuery:
        writer = self.stream(spark).writeStream.foreachBatch(function)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).options(**options)
        return writer.trigger(availableNow=True).start()

    def run(self, spark: SparkSession, function: Any = None) -> None:
        """Run the query to its end."""
        self.start(spark, function or self.epoch()).awaitTermination()

    def job(self, protocol: str = "2pc", **more: Any) -> Job:
        """The same query as a job that a driver of its own runs."""
        select = ["cast(id as string) as key", "cast(id as string) as value"]
        kafka = {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "topic": self.kafka.topic,
            "registertopic": self.kafka.options.registertopic,
            "protocol": protocol,
        }
        s3 = {**self.bucket.options, "protocol": protocol}
        postgres = {"dbtable": "t", "protocol": protocol, **self.postgres_options}
        sinks: list[dict[str, Any]] = [
            {"format": "abs-postgres", "name": "payments", "options": postgres},
            {"format": "abs-kafka", "name": "alerts", "options": kafka, "select": select},
            {"format": "abs-s3", "name": "items", "options": s3},
        ]
        given = {"options": {"job": JOB}, "sinks": sinks, **more}
        return replace(self.files.job, **given)

    def left_behind(self) -> list[str]:
        """What any of the targets holds pre-committed."""
        left = [f"postgres: {what}" for what in self.files.left_behind()]
        left += [f"kafka: {what}" for what in self.kafka.leftovers(JOB)]
        return left + [f"s3: {key}" for key in self.bucket.uploads()]

    def ids(self) -> dict[str, Counter[int]]:
        """What readers see in each target."""
        with psycopg.connect(self.files.url, autocommit=True) as connection:
            rows = connection.execute("select id from t").fetchall()
        return {
            "payments": Counter(int(row[0]) for row in rows),
            "alerts": Counter(int(value) for _, value in self.kafka.read()),
            "items": Counter(int(v) for v in self.bucket.ids().elements()),
        }

    def register(self) -> JobState:
        """The job's register, which lies in PostgreSQL."""
        stored = PostgresRegister(
            PostgresOptions.parse({"url": self.files.url, "dbtable": "t"})
        ).load(JOB)
        assert stored is not None
        return stored.state


def once(numbers: Sequence[int]) -> Counter[int]:
    """Each of these once."""
    return Counter(numbers)
