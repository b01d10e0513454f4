"""``protocol=wal`` on Kafka without a folder: the log lies beside the checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_clients.kafka.cluster import close_clusters
from abs_core.errors import OptionError, RefusedError
from abs_core.model import HandleName
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.door import FORMAT
from abs_sinks.wal import segment_store
from abs_spark.sink_spec import default_wal, parse, with_wal
from tests.kit.kafka import Variant
from tests.kit.kafka_modes import open_log
from tests.kit.kafka_source import KafkaSourceHarness
from tests.spark.kafka_world import KafkaWorld
from tests.spark.test_spark_kafka_sink import run

GIVEN = {"kafka.bootstrap.servers": "a:1", "topic": "t", "Protocol": "wal"}
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "aa")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As Spark makes it, before it asks for a writer."""
    made = tmp_path / "check point"
    made.mkdir()
    (made / "metadata").write_text('{"id":"9a1b"}')
    return made


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.services
def test_a_stream_needs_no_option_wal(
    kafka: KafkaService, spark: SparkSession, tmp_path: Path
) -> None:
    kafka.start()
    with open_log(kafka.bootstrap, Variant("wal")) as target:
        world = KafkaWorld(tmp_path, kafka, KafkaSourceHarness(kafka.bootstrap), target)
        given = {k: v for k, v in world.job().options.items() if k != "wal"}
        job = world.job(options=given)
        added = [*world.source.add(60)]
        run(spark, job)
        world.holds(added, "without a folder for the log")
        log = world.checkpoint / "abs" / "wal"
        assert [path.name for path in log.iterdir()] == [".abs-wal-id"], "segments are committed"
        added += world.source.add(10)
        world.forget_commits(1)
        run(spark, job)
        world.holds(added, "and after a replay")
    close_clusters()


def test_who_does_not_see_the_driver_s_folder_is_refused(checkpoint: Path) -> None:
    """As an executor on another machine, whose disk has no such folder, or another one."""
    url = with_wal({**GIVEN, "checkpointLocation": str(checkpoint)})["wal"]
    segment_store(url).create(HANDLE).discard()
    log = checkpoint / "abs" / "wal"
    (log / ".abs-wal-id").write_text("another")
    for _ in range(2):
        for use in (
            lambda: segment_store(url).create(HANDLE),
            lambda: segment_store(url).list("job"),
        ):
            with pytest.raises(
                RefusedError, match="not the folder that the driver uses"
            ) as refused:
                use()
            assert "set wal to a URL" in refused.value.remedy
        shutil.rmtree(log, ignore_errors=True)
    assert not log.exists(), "it is not made"


def test_every_process_of_the_driver_takes_the_same_log(checkpoint: Path) -> None:
    given = {**GIVEN, "checkpointLocation": str(checkpoint)}
    first = parse(FORMAT, given)
    assert first == parse(FORMAT, given)
    assert first.wal is not None
    assert first.wal.startswith((checkpoint / "abs" / "wal").as_uri())


@pytest.mark.parametrize(
    ("checkpoint", "url"),
    [
        ("s3a://bucket/some/where/", "s3://bucket/some/where/abs/wal"),
        ("S3://bucket/c", "s3://bucket/c/abs/wal"),
    ],
)
def test_a_bucket_is_reached_by_all(checkpoint: str, url: str) -> None:
    assert default_wal(checkpoint) == url


@pytest.mark.parametrize("where", ["hdfs://name:8020/c", "gs://bucket/c", "/no/such/checkpoint"])
def test_a_checkpoint_elsewhere_needs_the_option(where: str) -> None:
    with pytest.raises(OptionError, match="needs the option wal") as refused:
        parse(FORMAT, {**GIVEN, "checkpointLocation": where})
    assert "set wal to a URL" in refused.value.remedy


def test_what_is_given_counts(checkpoint: Path) -> None:
    given = {**GIVEN, "checkpointLocation": str(checkpoint), "WAL": "file:///elsewhere"}
    assert parse(FORMAT, given).wal == "file:///elsewhere"
    assert not (checkpoint / "abs").exists()
    with pytest.raises(OptionError, match="checkpointLocation"):
        parse(FORMAT, GIVEN)
    with_2pc = {**GIVEN, "Protocol": "2pc", "checkpointLocation": str(checkpoint)}
    assert parse(FORMAT, with_2pc) == KafkaOptions.parse(with_2pc)
    assert not (checkpoint / "abs").exists()
