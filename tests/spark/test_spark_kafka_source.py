"""Kafka read by Spark: batches, streams that stop and go on, drivers that are killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from abs_services import KafkaService
from abs_spark.datasource.kafka import KafkaDataSource
from tests import sample
from tests.kit.kafka_source import KafkaSourceHarness
from tests.spark.drivers import Driver
from tests.spark.jobs.stream_files import Job, run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(2)]

SPARKS_OWN = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


@pytest.fixture
def topic_of(kafka: KafkaService) -> KafkaSourceHarness:
    """A topic of two partitions."""
    kafka.start()
    return KafkaSourceHarness(kafka.bootstrap)


class Reading:
    """A job from a topic to a folder, exactly once."""

    def __init__(self, folder: Path, kafka: KafkaService, topic: str, **options: str) -> None:
        self.folder = folder
        self.target = folder / "target"
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
        given |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "50", **options}
        self.job = Job(
            input="",
            checkpoint=str(folder / "checkpoint"),
            scratch=str(folder / "scratch"),
            format="abs-folder",
            options={"path": str(self.target)},
            source="abs-kafka",
            source_options=given,
        )

    def run(self, spark: SparkSession, **options: str) -> None:
        """To the end of what is there."""
        spark.dataSource.register(KafkaDataSource)
        job = replace(self.job, source_options={**self.job.source_options, **options})
        run_to_end(spark, job)

    def rows(self) -> pa.Table:
        files = sorted((self.target / "data").glob("*.arrow"))
        return pa.concat_tables([pa.ipc.open_file(file).read_all() for file in files])

    def holds(self, added: Sequence[object]) -> None:
        """Each of these values is there once, and no other; and no offset is there twice."""
        table = self.rows()
        found, expected = Counter(table["value"].to_pylist()), Counter(added)
        assert found == expected, f"missing {expected - found}, too many {found - expected}"
        places = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        assert len(set(places)) == len(places)

    def forget_commit(self) -> None:
        """Delete the newest file under the checkpoint's ``commits/``."""
        commits = self.folder / "checkpoint" / "commits"
        newest = max((path for path in commits.iterdir() if path.name.isdecimal()), key=_number)
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)

    def epochs(self) -> list[dict[str, Any]]:
        """The ends of the epochs, as Spark keeps them."""
        logs = self.folder / "checkpoint" / "offsets"
        numbers = sorted(int(path.name) for path in logs.iterdir() if path.name.isdecimal())
        return [json.loads((logs / str(n)).read_text().splitlines()[-1]) for n in numbers]


@pytest.fixture
def reading(
    tmp_path: Path, kafka: KafkaService, topic_of: KafkaSourceHarness
) -> Callable[..., Reading]:
    return lambda **options: Reading(tmp_path, kafka, topic_of.topic, **options)


def test_a_batch_read_gives_every_column_as_sparks_own_source_does(
    spark: SparkSession, kafka: KafkaService, topic_of: KafkaSourceHarness
) -> None:
    spark.dataSource.register(KafkaDataSource)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    at = datetime.now(UTC).replace(microsecond=234000)  # an old one: deleted by retention
    millis = round(at.timestamp() * 1000)
    headers: list[Any] = [("a", b"\x00"), ("a", None), ("ü", b"")]
    producer.produce(
        topic_of.topic, key=b"k", value=b"v", partition=1, headers=headers, timestamp=millis
    )
    producer.produce(topic_of.topic, key=None, value=None, partition=1, timestamp=millis + 1)
    producer.produce(topic_of.topic, key=b"", value=b"", partition=0)
    producer.flush()
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic_of.topic}
    frame = spark.read.format("abs-kafka").options(**options, includeHeaders="true").load()
    assert frame.schema == StructType.fromDDL(f"{SPARKS_OWN}, {HEADERS}")
    first, second, third = frame.orderBy("partition", "offset").toArrow().to_pylist()
    assert (first["key"], first["value"], first["partition"]) == (b"", b"", 0)
    assert second == {
        "key": b"k",
        "value": b"v",
        "topic": topic_of.topic,
        "partition": 1,
        "offset": 0,
        "timestamp": at,
        "timestampType": 0,
        "headers": [{"key": key, "value": value} for key, value in headers],
    }
    assert (third["key"], third["value"], third["offset"]) == (None, None, 1)
    assert third["headers"] is None
    ends = json.dumps({topic_of.topic: {"0": 0, "1": 1}})
    bounded = spark.read.format("abs-kafka").options(**options, endingOffsets=ends).load()
    assert bounded.schema == StructType.fromDDL(SPARKS_OWN)
    assert [bytes(row.value) for row in bounded.collect()] == [b"v"]


def test_available_now_reads_in_epochs_and_goes_on_with_new_partitions(
    spark: SparkSession, kafka: KafkaService, topic_of: KafkaSourceHarness, reading: Any
) -> None:
    job = reading(minPartitions="3")
    added = [*topic_of.add(60)]
    job.run(spark)
    job.holds(added)
    assert len(job.epochs()) == 3, "122 offsets, markers and aborted ones among them, 50 at a time"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic_of.topic, 3)])[topic_of.topic].result()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    more = [b"new %d" % n for n in range(30)]
    for number, value in enumerate(more):
        producer.produce(topic_of.topic, value=value, partition=2 if number % 2 else 0)
    producer.flush()
    job.run(spark)
    job.holds([*added, *more])
    offsets = job.epochs()[-1][topic_of.topic]["offsets"]
    assert offsets["2"] == 15


@pytest.mark.always
def test_a_driver_that_is_killed_goes_on_at_the_exact_offsets(
    spark: SparkSession, topic_of: KafkaSourceHarness, reading: Any
) -> None:
    job = reading(maxOffsetsPerTrigger="40")
    added = [*topic_of.add(100)]
    endless = replace(job.job, continuous=True)
    with Driver(endless, job.folder / "first") as driver:
        data = job.target / "data"
        driver.wait_until(lambda: len([*data.glob("*.arrow")]) >= 2, "an epoch is committed")
        driver.kill()
    added += topic_of.add(40)
    job.run(spark)
    job.holds(added)
    job.forget_commit()
    job.run(spark)
    job.holds(added)


def test_another_bound_of_an_epoch_at_a_restart_reads_each_record_once(
    spark: SparkSession, topic_of: KafkaSourceHarness, reading: Any
) -> None:
    """``maxOffsetsPerTrigger`` changes between runs, the last epoch of each comes again."""
    job = reading()
    added: list[object] = []
    for bound in ("50", "200", "20"):
        added += topic_of.add(30)
        job.run(spark, maxOffsetsPerTrigger=bound)
        job.holds(added)
        job.forget_commit()


def test_a_topic_made_anew_stops_the_query_unless_data_may_be_lost(
    spark: SparkSession, topic_of: KafkaSourceHarness, reading: Any
) -> None:
    job = reading()
    added = [*topic_of.add(10)]
    job.run(spark)
    topic_of.delete()
    topic_of.create()
    again = topic_of.add(30)
    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        job.run(spark)
    job.holds(added)
    job.run(spark, failOnDataLoss="false")
    assert Counter(job.rows()["value"].to_pylist()) == Counter([*added, *again])


def _number(path: Path) -> int:
    return int(path.name)
