"""Streams through one Spark session into PostgreSQL: what restarts, replays and bad input do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from abs_spark.hooks import sentence_of
from tests import sample
from tests.spark.drivers import until
from tests.spark.jobs.stream_files import Job, run_to_end, start
from tests.spark.world import JOB, WAYS, World, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(5)]

NewWorld = Callable[[str], World]


def run(spark: SparkSession, world: World, job: Job | None = None) -> None:
    """Run the job until its files are read; raises what stops it."""
    run_to_end(spark, job or world.job, world.url)


@pytest.mark.parametrize("way", sample.members(WAYS, 2, "lost commit files"))
def test_a_lost_commit_file_changes_nothing(
    way: str, new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world(way)
    job = replace(world.job, tasks=2)
    expected = world.add_files(range(3))
    run(spark, world, job)
    world.holds(expected)
    for newest in (1, 2):
        world.forget_commits(newest)
        run(spark, world, replace(job, scramble=True))
        world.holds(expected)
        assert world.frontier() == 2
    expected += world.add_file(3)
    world.forget_commits(1)
    run(spark, world, job)
    world.holds(expected)
    assert world.left_behind() == []


def test_a_query_with_a_time_is_told_the_setting_that_it_needs(spark: SparkSession) -> None:
    query = "select cast('12:00:00' as time) as at"
    with pytest.raises(AnalysisException) as told:
        spark.sql(query)
    assert "set spark.sql.timeType.enabled to true" in (sentence_of(told.value) or "")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        assert spark.sql(query).schema["at"].dataType.simpleString().startswith("time")
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")


def _finished_or_ended(world: World, query: StreamingQuery, epoch: int) -> bool:
    return not query.isActive or world.frontier() >= epoch


def test_a_column_may_be_added_to_the_table_under_a_running_query(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    query = start(spark, replace(world.job, continuous=True), world.url)
    until(lambda: world.frontier() >= 0, "epoch 0 is finished")
    for number, change in enumerate(
        ("add column note text", "add column level int not null default 7"), 1
    ):
        world.alter(change)
        expected += world.add_file(number)
        done = partial(_finished_or_ended, world, query, number)
        until(done, f"epoch {number} is finished, or the query has ended")
    query.stop()
    world.holds(expected)
    expected += world.add_file(3)
    run(spark, world)
    world.holds(expected)


def test_a_column_that_is_missing_is_told_alike_at_a_start_and_under_a_running_query(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    query = start(spark, replace(world.job, continuous=True), world.url)
    until(lambda: world.frontier() >= 0, "epoch 0 is finished")
    world.alter("add column needed int not null default 1")
    world.alter("alter column needed drop default")
    world.add_file(1)
    said = 'column "needed" integer NOT NULL has no default and is missing in the input: add it in'
    with pytest.raises(StreamingQueryException, match=said):
        query.awaitTermination()
    with pytest.raises(StreamingQueryException, match=said):
        run(spark, world)
    world.holds(expected)
    world.alter("alter column needed set default 2")  # the remedy
    run(spark, world)
    world.holds([*expected, *rows_of(1, 40)])


def test_a_query_that_runs_on_is_stopped_and_goes_on(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(2))
    query = start(spark, replace(world.job, continuous=True, tasks=2), world.url)
    until(lambda: world.frontier() >= 1, "epoch 1 is finished")
    expected += world.add_files(range(2, 6))
    until(lambda: world.frontier() >= 2, "epoch 2 is finished")
    query.stop()  # most likely in the middle of an epoch
    run(spark, world)
    world.holds(expected)
    assert world.left_behind() == []


def test_a_rolled_back_checkpoint_is_refused(new_world: NewWorld, spark: SparkSession) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(2))
    run(spark, world)
    old = world.with_checkpoint_copy("old").checkpoint
    expected += world.add_file(2)
    run(spark, world)
    shutil.rmtree(world.checkpoint)
    old.rename(world.checkpoint)
    with pytest.raises(StreamingQueryException, match="checkpoint was rolled back or edited"):
        run(spark, world)
    world.holds(expected)


def test_another_checkpoint_under_the_same_job_is_refused_unless_it_is_adopted(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    run(spark, world)
    world.with_checkpoint_copy("copy")
    shutil.rmtree(world.checkpoint)
    with pytest.raises(StreamingQueryException, match="IdentityError") as refused:
        run(spark, world)
    world.holds(expected)
    shutil.rmtree(world.checkpoint)
    shutil.copytree(world.folder / "copy" / "checkpoint", world.checkpoint)
    expected += world.add_file(1)
    run(spark, world)  # restored, as the error says
    world.holds(expected)
    shutil.rmtree(world.checkpoint)
    with pytest.raises(StreamingQueryException, match="IdentityError") as refused:
        run(spark, world)
    token = str(refused.value).split("adopt=")[1].split(".")[0]
    run(spark, world, replace(world.job, options={**world.job.options, "adopt": token}))
    world.holds(expected + expected)  # what the consent said


def test_another_query_without_a_name_on_the_same_table_is_warned_of(
    new_world: NewWorld, spark: SparkSession, spark_log: Path
) -> None:
    world = new_world("2pc")
    world.add_file(0)
    options = {name: value for name, value in world.job.options.items() if name != "job"}
    job = replace(world.job, options=options)  # the query id names it: it goes with the checkpoint
    run(spark, world, job)
    before = spark_log.stat().st_size
    run(spark, world, replace(job, checkpoint=str(world.folder / "another")))
    said = spark_log.read_bytes()[before:].decode(errors="replace")
    assert said.count("everything would be written twice") == 1
    assert said.index("WARNING abs_spark.start") < said.index("generation 1 started")


def test_an_epoch_without_rows_counts(new_world: NewWorld, spark: SparkSession) -> None:
    world = new_world("2pc")
    world.add_file(0, rows=0)
    run(spark, world)
    assert world.frontier() == 0
    expected = world.add_file(1)
    run(spark, world)
    world.holds(expected)
    assert world.frontier() == 1


def test_a_bad_row_leaves_nothing_and_the_mended_file_is_written_once(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    run(spark, world)
    bad = rows_of(1)
    words = [row[1] for row in bad]
    words[17] = "nul \0 inside"
    world.put(
        1,
        pa.table(
            {
                "id": [row[0] for row in bad],
                "word": words,
                "at": pa.array([row[2] for row in bad], pa.timestamp("us", "UTC")),
            }
        ),
    )
    with pytest.raises(StreamingQueryException, match=r"RowError.*word"):
        run(spark, world, replace(world.job, tasks=2))
    world.holds(expected)
    expected += world.add_file(1)
    run(spark, world, replace(world.job, tasks=2))
    world.holds(expected)
    assert world.left_behind() == []


def test_what_a_stream_cannot_do_is_said_before_anything_is_written(
    new_world: NewWorld, spark: SparkSession, spark_log: Path
) -> None:
    world = new_world("2pc")
    world.add_file(0)

    def refused(expected: str, url: str | None = None, **options: str) -> None:
        job = replace(world.job, options={**world.job.options, **options})
        with pytest.raises(StreamingQueryException, match=expected):
            run_to_end(spark, job, url or world.url)

    refused("did you mean protocol", protokol="wal")
    refused("names a batch write", epoch="2026-01-01")
    refused("cannot upsert", write="upsert", key="id")
    refused("does not exist", dbtable="nowhere")
    secret = "geheim-5Q"
    refused("RefusedError|UnavailableError", password=secret)
    counts = spark.readStream.schema("id long").parquet(world.job.input).groupBy("id").count()
    complete = counts.writeStream.format("abs-postgres").outputMode("complete")
    complete = complete.options(url=world.url, dbtable="t", job=JOB)
    complete = complete.option("checkpointLocation", str(world.folder / "other"))
    with pytest.raises(StreamingQueryException, match="outputMode complete would replace"):
        complete.trigger(availableNow=True).start().awaitTermination()
    updating = counts.writeStream.format("abs-postgres").outputMode("update")
    updating = updating.options(url=world.url, dbtable="t", job=JOB)
    updating = updating.option("checkpointLocation", str(world.folder / "updating"))
    with pytest.raises(StreamingQueryException) as told:
        updating.trigger(availableNow=True).start().awaitTermination()
    assert "abs_spark.epoch" in (sentence_of(told.value) or "")
    rates = (
        spark.readStream.format("rate").load().selectExpr("value id", "'w' word", "timestamp at")
    )
    continuous = rates.writeStream.format("abs-postgres").trigger(continuous="1 second")
    continuous = continuous.options(url=world.url, dbtable="t", job=JOB)
    query = continuous.option("checkpointLocation", str(world.folder / "another")).start()
    until(lambda: "cannot do continuous" in spark_log.read_text(errors="replace"), "it is said")
    query.stop()  # Spark itself would go on
    world.holds([])
    assert world.state() is None
    assert secret not in spark_log.read_text(errors="replace")


def test_each_start_shows_its_guarantee_once_on_the_drivers_console(
    new_world: NewWorld, spark: SparkSession, spark_log: Path
) -> None:
    world = new_world("wal")
    job = replace(world.job, options={**world.job.options, "job": f"shown-{world.folder.name}"})
    password = world.url.split("//")[1].split("@")[0].split(":")[1]

    def shown() -> int:
        text = spark_log.read_text(errors="replace")
        assert password not in text
        return text.count(f"job {job.options['job']}: every row exactly once (protocol wal")

    for starts in (1, 2):
        world.add_files((10 * starts, 10 * starts + 1))
        run(spark, world, job)
        assert shown() == starts
