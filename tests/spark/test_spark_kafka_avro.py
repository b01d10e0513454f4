"""Records with a schema through Spark: a replay after a kill writes the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from abs_clients.kafka.cluster import close_clusters
from abs_core.crash import CrashPoint
from abs_services import KafkaService
from abs_services.registry import StandIn
from abs_spark.datasource.kafka import KafkaDataSource
from tests.kit.kafka import TopicHarness, Variant
from tests.kit.kafka_reading import new_reader
from tests.kit.kafka_source import KafkaSourceHarness
from tests.spark.drivers import killed_at
from tests.spark.jobs.stream_files import run_to_end
from tests.spark.kafka_world import KafkaWorld

pytestmark = [pytest.mark.spark, pytest.mark.services]

FIELDS = [{"name": "at", "type": "long"}, {"name": "text", "type": "string"}]
FIRST = {"type": "record", "name": "shop.Order", "fields": FIELDS}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
SECOND = {**FIRST, "fields": [*FIELDS, NOTE]}
SELECT = ["struct(offset AS at, CAST(value AS STRING) AS text) AS value"]


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with StandIn() as served:
        yield served


def values(topic: TopicHarness, isolation: str) -> set[bytes]:
    """All values of the topic; ``read_uncommitted``: also those of aborted attempts."""
    with closing(new_reader(topic.bootstrap, isolation)) as consumer:
        topic._consumer = consumer
        try:
            return {value or b"" for _, value in topic.records()}
        finally:
            topic._consumer = None


@pytest.mark.campaign  # the sample has the sink's own replays: test_kafka_avro_sink.py
def test_a_replay_after_a_kill_writes_the_same_bytes_although_the_schema_has_evolved(
    kafka: KafkaService, registry: StandIn, spark: SparkSession, tmp_path: Path
) -> None:
    kafka.start()
    spark.dataSource.register(KafkaDataSource)
    with closing(TopicHarness(kafka.bootstrap, Variant("2pc"))) as target:
        world = KafkaWorld(tmp_path, kafka, KafkaSourceHarness(kafka.bootstrap), target)
        avro = {"value.format": "avro", "registry.url": registry.url}
        plain = world.job()
        job = world.job(select=SELECT, options={**plain.options, **avro})
        old = registry.add(f"{target.topic}-value", FIRST)
        added: list[Any] = [*world.source.add(60)]
        # In its second epoch: what it has pre-committed is aborted, and written again.
        killed_at(CrashPoint.AFTER_PRE_COMMIT, 2, job, tmp_path / "first")
        new = registry.add(f"{target.topic}-value", SECOND)
        added += world.source.add(60)  # for epochs after the one that is written again
        run_to_end(spark, job)

        there, every = values(target, "read_committed"), values(target, "read_uncommitted")
        texts = read(spark, world, avro)
        assert sorted(row.text for row in texts) == sorted(each.decode() for each in added)
        assert all(row.note is None for row in texts), "it is read by the newest schema"
        assert every == there, "an aborted attempt wrote other bytes than its replay"
        assert {int.from_bytes(each[1:5], "big") for each in there} == {old, new}
    close_clusters()


def read(spark: SparkSession, world: KafkaWorld, avro: dict[str, str]) -> list[Any]:
    options = {
        "kafka.bootstrap.servers": world.kafka.bootstrap,
        "subscribe": world.target.topic,
        **avro,
    }
    frame = spark.read.format("abs-kafka").options(**options).load()
    return list(frame.select("value.*").collect())


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"


def test_the_lines_of_the_page_write_and_read_a_topic(
    kafka: KafkaService, registry: StandIn, spark: SparkSession, tmp_path: Path
) -> None:
    """As they stand, but for the names of places."""
    kafka.start()
    spark.dataSource.register(KafkaDataSource)
    written, read_back = [
        block.removeprefix("python\n")
        for block in PAGE.read_text().split("```")[1::2]
        if block.startswith("python")
    ]
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.json").write_text('{"id": 1, "amount": 13.7}\n{"id": 2}\n')
    with closing(TopicHarness(kafka.bootstrap, Variant("2pc"))) as target:
        fields = [{"name": name, "type": ["null", "double"]} for name in ("id", "amount")]
        fields[0]["type"] = "long"
        schema = {"type": "record", "name": "shop.Payment", "fields": fields}
        registry.add(f"{target.topic}-value", schema)
        places = {
            "broker:9092": kafka.bootstrap,
            '"payments")': f'"{target.topic}")',
            "https://registry.example": registry.url,
            "/checkpoints/payments": str(tmp_path / "checkpoint"),
        }
        names: dict[str, Any] = {"spark": spark}
        reader = spark.readStream.schema("id BIGINT, amount DOUBLE")
        names["payments"] = reader.json(str(tmp_path / "landing"))
        for text in (written, read_back):
            for name, place in places.items():
                text = text.replace(name, place)
            exec(text, names)
        names["query"].processAllAvailable()
        names["query"].stop()
        shown = names["rows"].writeStream.format("memory").queryName("payments_read")
        query = shown.trigger(availableNow=True).start()
        query.awaitTermination()
        rows = spark.table("payments_read").collect()
        assert sorted((row.id, row.amount) for row in rows) == [(1, 13.7), (2, None)]
    close_clusters()
