"""Kafka to Kafka through Spark: each record once, whatever is killed, read by another client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_services import KafkaService
from abs_sinks.kafka.control import close_all
from abs_sinks.kafka.testing import TopicHarness, Variant, open_topic
from abs_sources.kafka.testing import KafkaSourceHarness
from abs_spark.kafka import KafkaDataSource
from tests.spark.drivers import Driver
from tests.spark.jobs.stream_files import Job, start

pytestmark = [pytest.mark.spark, pytest.mark.services]


@pytest.fixture
def source(kafka: KafkaService) -> KafkaSourceHarness:
    """A topic of two partitions."""
    kafka.start()
    return KafkaSourceHarness(kafka.bootstrap)


@pytest.fixture
def target(kafka: KafkaService) -> Iterator[TopicHarness]:
    with open_topic(kafka.bootstrap, Variant("2pc")) as harness:
        yield harness
    close_all()


def job_of(folder: Path, kafka: KafkaService, source: str, target: TopicHarness) -> Job:
    return Job(
        input="",
        checkpoint=str(folder / "checkpoint"),
        scratch=str(folder / "scratch"),
        format="abs-kafka",
        options={
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": target.topic,
            "registertopic": target.options.registertopic,
        },
        source="abs-kafka",
        source_options={
            "kafka.bootstrap.servers": kafka.bootstrap,
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "40",
        },
    )


def test_a_killed_driver_and_a_replayed_epoch_lose_and_double_nothing(
    spark: SparkSession,
    kafka: KafkaService,
    source: KafkaSourceHarness,
    target: TopicHarness,
    tmp_path: Path,
) -> None:
    job = job_of(tmp_path, kafka, source.topic, target)
    added = [*source.add(100)]
    commits = tmp_path / "checkpoint" / "commits"
    with Driver(replace(job, continuous=True), tmp_path / "first") as driver:
        driver.wait_until(lambda: len(list(commits.glob("[0-9]*"))) >= 2, "two epochs are done")
        driver.kill()
    added += source.add(40)
    spark.dataSource.register(KafkaDataSource)
    start(spark, job).awaitTermination()
    holds(target, added, "after a driver was killed")
    newest = max((p for p in commits.iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    start(spark, job).awaitTermination()
    holds(target, added, "after an epoch was replayed")
    assert target.hidden() == 0, "a transaction is still open"


def holds(target: TopicHarness, added: Sequence[object], when: str) -> None:
    found: Counter[object] = Counter(value for _, value in target.records())
    expected = Counter(added)
    assert found == expected, f"{when}: missing {expected - found}, too many {found - expected}"
