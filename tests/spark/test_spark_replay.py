"""What comes again under a name that is committed: the same rows are skipped, others are refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import abs_spark
from abs_clients.kafka.cluster import close_clusters
from abs_core.model import job_key
from abs_services import KafkaService
from abs_sinks.postgres.door import FORMAT
from abs_spark.datasource.kafka import KafkaDataSource
from abs_spark.datasource.source import AbsDataSource
from tests import sample
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.spark.bucket import Bucket
from tests.spark.jobs.stream_files import run_to_end
from tests.spark.world import ARROW, JOB, World, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(4)]

NewWorld = Callable[[str], World]


def save(frame: DataFrame, format: str, options: dict[str, str], **more: str) -> None:  # noqa: A002
    writer = frame.write.format(format).mode("append").options(**options)
    writer.options(**{"job": "batch", "epoch": "monday", **more}).save()


def test_other_rows_of_the_same_number_are_refused_and_the_column_is_named(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(2))
    options = {**world.job.options, "url": world.url}
    monday = spark.read.parquet(world.job.input)
    save(monday, "abs-postgres", options)
    tuesday = monday.withColumn("word", f.expr("if(id = 7, 'other', word)"))
    with pytest.raises(
        AnalysisException, match=r'the values of column "word" differ.*replay=token'
    ):
        save(tuesday, "abs-postgres", options)
    stamped = monday.withColumn("at", f.current_timestamp())
    with pytest.raises(AnalysisException, match=r'column "at" differ.*current_timestamp'):
        save(stamped, "abs-postgres", options)
    save(monday.repartition(3, f.rand()), "abs-postgres", options)
    save(stamped, "abs-postgres", options, replay="token")
    save(tuesday, "abs-postgres", options, replay="count")
    with pytest.raises(AnalysisException, match="with other rows: it has 79 rows now and had 80"):
        save(tuesday.where("id <> 3"), "abs-postgres", options, replay="count")
    world.holds(expected)
    assert world.left_behind(job_key("batch", "monday")) == []


def test_a_batch_of_an_older_release_is_told_by_its_count(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    options = {**world.job.options, "url": world.url}
    frame = spark.read.parquet(world.job.input)
    save(frame, "abs-postgres", options, replay="count")  # records what older releases did
    state = world.state(job_key("batch", "monday"))
    assert state is not None
    assert [recent.fingerprint for recent in state.recent] == [None]
    save(frame.withColumn("word", f.lit("other")), "abs-postgres", options)
    with pytest.raises(AnalysisException, match="39 rows now and had 40"):
        save(frame.where("id <> 3"), "abs-postgres", options)
    world.holds(expected)


def test_a_batch_whose_register_is_lost_is_refused_and_consent_is_for_it_alone(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    options = {**world.job.options, "url": world.url}
    frame = spark.read.parquet(world.job.input)
    save(frame, "abs-postgres", options)
    save(frame, "abs-postgres", options, epoch="tuesday")
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("delete from abs.register where job like 'batch@%day'")
    with pytest.raises(PySparkException, match="RegisterLostError") as lost:
        save(frame, "abs-postgres", options)
    world.holds(expected + expected)
    (consent,) = re.findall(r"adopt=([0-9a-f]{12})", str(lost.value))[:1]
    with pytest.raises(PySparkException, match="RegisterLostError"):
        save(frame, "abs-postgres", options, epoch="tuesday", adopt=consent)
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("truncate t")
    save(frame, "abs-postgres", options, adopt=consent)
    save(frame, "abs-postgres", options, adopt=consent)
    world.holds(expected)


def test_in_a_bucket_too(bucket: Bucket, spark: SparkSession) -> None:
    frame = spark.range(100).selectExpr("id", "cast(id / 7 as decimal(12, 4)) as price")
    save(frame, "abs-s3", bucket.options, protocol="wal")
    other = frame.withColumn("price", f.expr("if(id = 50, price + 0.0001, price)"))
    with pytest.raises(AnalysisException, match='the values of column "price" differ'):
        save(other, "abs-s3", bucket.options, protocol="wal")
    save(frame.repartition(4, f.rand()), "abs-s3", bucket.options, protocol="wal")
    assert bucket.ids() == Counter(range(100))
    assert bucket.uploads() == []


@pytest.fixture
def topic(kafka: KafkaService) -> Iterator[TopicHarness]:
    kafka.start()
    with ExitStack() as stack:
        yield stack.enter_context(open_topic(kafka.bootstrap, Variant("2pc")))
    close_clusters()


def test_in_a_topic_too(topic: TopicHarness, kafka: KafkaService, spark: SparkSession) -> None:
    spark.dataSource.register(KafkaDataSource)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic.topic,
        "registertopic": topic.options.registertopic,
    }
    frame = spark.range(100).selectExpr("string(id) as key", "concat('v', id) as value")
    save(frame, "abs-kafka", options)
    other = frame.withColumn("value", f.expr("if(key = '50', 'other', value)"))
    with pytest.raises(AnalysisException, match='the values of column "value" differ'):
        save(other, "abs-kafka", options)
    save(frame.repartition(4, f.rand()), "abs-kafka", options)
    wanted = Counter((b"%d" % number, b"v%d" % number) for number in range(100))
    assert Counter(topic.records()) == wanted


def test_a_stream_without_a_readable_checkpoint_tells_its_epochs_by_their_rows(
    new_world: NewWorld, spark: SparkSession, tmp_path: Path
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(2))

    def run() -> None:
        rows = spark.readStream.schema("id bigint, word string, at timestamp")
        frame = rows.option("maxFilesPerTrigger", 1).parquet(world.job.input)
        # By the session's setting: a sink is not told of it.
        writer = frame.writeStream.format("abs-postgres").options(**world.job.options)
        writer = writer.option("url", world.url).queryName("told_by_rows")
        writer.trigger(availableNow=True).start().awaitTermination()

    checkpoint = tmp_path / "checkpoint" / "told_by_rows"
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(checkpoint.parent))
    try:
        run()
        commits = checkpoint / "commits"
        for name in ("1", ".1.crc"):
            (commits / name).unlink()
        run()
        world.holds(expected)
        (commits / "1").unlink()
        (commits / ".1.crc").unlink()
        world.put(1, _table(rows_of(2)))
        with pytest.raises(
            StreamingQueryException, match='the values of columns "at", "id", "word"'
        ):
            run()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    world.holds(expected)
    state = world.state()
    assert state is not None
    assert [recent.fingerprint is not None for recent in state.recent] == [True, True]
    assert "columns" not in str(state.recent[0].fingerprint), "only the newest epoch keeps columns"


def test_an_epoch_function_makes_no_digest_where_its_sink_says_count(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    options = {"url": world.url, "dbtable": "t", "replay": "count"}
    sink = abs_spark.sink("abs-postgres", options)
    function = abs_spark.epoch(sink, job=JOB, checkpointLocation="unknown://there")
    rows = spark.readStream.schema("id bigint, word string, at timestamp")
    writer = rows.parquet(world.job.input).writeStream.foreachBatch(function)
    writer = writer.option("checkpointLocation", str(world.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    world.holds(expected)
    state = world.state()
    assert state is not None
    assert [(recent.fingerprint, recent.rows) for recent in state.recent] == [(None, 40)]


def _table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(c, field.type) for c, field in zip(columns, ARROW, strict=True)], ARROW
    )


def test_a_stream_with_a_readable_checkpoint_makes_no_digest(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    run_to_end(spark, world.job, world.url)
    world.holds(expected)
    state = world.state()
    assert state is not None
    assert [str(recent.fingerprint)[:7] for recent in state.recent] == ["sha256:"]


def test_a_stream_has_no_token_to_trust(new_world: NewWorld, spark: SparkSession) -> None:
    world = new_world("2pc")
    options = {**world.job.options, "url": world.url, "replay": "token"}
    source = AbsDataSource(options, FORMAT)
    with pytest.raises(Exception, match="a stream has none"):
        source.streamWriter(spark.range(1).schema, overwrite=False)
