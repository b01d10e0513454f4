"""The format abs-files in Spark: streams over kills and replays, batches, what Spark would read."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from abs_services import S3Service
from tests.sources.files.fill import Bucket, packed
from tests.spark.drivers import Driver
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.world import ARROW, World

NewWorld = Callable[[str], World]


def job_of(world: World) -> Job:
    """Reads by abs-files, one file an epoch; the log lies in the checkpoint."""
    how = {
        "path": str(world.folder / "input"),
        "checkpointLocation": str(world.checkpoint),
        "maxFilesPerTrigger": "1",
    }
    return replace(world.job, source="abs-files", source_options=how)


def holds_rows(world: World, enough: int) -> bool:
    return world.count() >= enough


def run(spark: SparkSession, world: World) -> None:
    run_to_end(spark, job_of(world), world.url)


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.services
def test_a_job_from_files_to_postgres_is_exact_over_a_kill_and_replays(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(6))
    killed = replace(job_of(world), continuous=True, scramble=True)
    with Driver(killed, world.folder / "first", world.url) as driver:
        driver.wait_until(lambda: world.frontier() >= 1 and world.in_doubt() > 0, "it is in doubt")
        driver.kill()
    assert 0 < world.count() < len(expected)
    expected += world.add_file(6)
    run(spark, world)
    world.holds(expected)
    world.forget_commits(1)
    expected += world.add_file(5000)  # later, and one more that sorts before all others
    expected += world.add_file(4999)
    run(spark, world)
    world.holds(expected)
    assert world.frontier() == 8
    assert world.left_behind() == []


@pytest.mark.spark
@pytest.mark.services
def test_a_stream_from_a_bucket_with_its_log_in_it_is_exact_over_a_replay(
    spark: SparkSession, s3: S3Service, prefix: str, tmp_path: Path
) -> None:
    keys = f"aws_access_key_id={s3.access_key}\naws_secret_access_key={s3.secret_key}"
    Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).write_text(f"[default]\n{keys}\n")
    disk = Bucket(s3, prefix)
    seen: dict[int, list[int]] = {}

    def take(batch: DataFrame, epoch: int) -> None:
        ids = sorted(row.id for row in batch.collect())
        assert seen.setdefault(epoch, ids) == ids, "a replayed epoch has other rows"

    def read() -> None:
        frame = spark.readStream.format("abs-files").options(**disk.given, maxFilesPerTrigger="1")
        writer = frame.load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    for number in range(3):
        disk.put(f"{number}.parquet", packed(range(number * 10, number * 10 + 10), "parquet"))
    read()
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink(missing_ok=True)
    disk.put("0-late.parquet", packed(range(30, 40), "parquet"))
    read()
    assert sorted(seen) == [0, 1, 2, 3]
    assert sorted(n for ids in seen.values() for n in ids) == list(range(40))


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.services
@pytest.mark.parametrize("way", ["2pc", "wal"])
def test_a_job_killed_again_and_again_is_exact(
    way: str, new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world(way)
    chance = random.Random(way)
    expected = []
    for attempt in range(6):
        expected += world.add_files(range(attempt * 10, attempt * 10 + 10))
        enough = world.count() + chance.randint(0, 300)
        killed = replace(job_of(world), continuous=True, scramble=True)
        with Driver(killed, world.folder / f"run{attempt}", world.url) as driver:
            driver.wait_until(partial(holds_rows, world, enough), "so many rows are there")
            driver.kill()
        shutil.rmtree(world.folder / "scratch", ignore_errors=True)
    run(spark, world)
    world.holds(expected)
    assert world.left_behind() == []


@pytest.mark.spark
@pytest.mark.services
def test_a_replay_of_a_file_that_is_not_what_it_was_stops_the_query(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("wal")
    expected = world.add_files(range(2))
    run(spark, world)
    world.forget_commits(1)
    file = world.folder / "input" / "0001.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    with pytest.raises(
        StreamingQueryException, match=r"ReplayMismatchError: The file .*0001\.parquet"
    ):
        run(spark, world)
    world.holds(expected)


def contents(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.collect())


@pytest.mark.spark
def test_a_batch_is_what_spark_itself_reads(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1000).selectExpr(
        "id", "concat('w', id % 7) as word", "cast(id as double) / 3 as x",
        "timestamp_seconds(id * 1000) as at", "date_add(date'2026-01-01', cast(id % 99 as int)) as day",
        "cast(id as decimal(12,3)) as money", "if(id % 5 = 0, null, id % 2 = 0) as flag",
    )  # fmt: skip
    schema = frame.schema
    ways = [("parquet", {}, {}), ("json", {}, {}), ("csv", {"header": "true"}, {"header": "true"})]
    for form, written, given in ways:
        path = str(tmp_path / form)
        frame.repartition(3).write.format(form).options(**written).save(path)
        options = {"fileformat": form, **given}
        found = spark.read.format("abs-files").schema(schema).options(**options).load(path)
        theirs = spark.read.format(form).schema(schema).options(**given).load(path)
        assert contents(found) == contents(theirs) == contents(frame), form
    stored = spark.read.format("abs-files").load(str(tmp_path / "parquet"))
    assert stored.schema.simpleString() == frame.schema.simpleString()
    assert contents(stored) == contents(frame)


@pytest.mark.spark
def test_a_stream_without_a_log_is_refused_with_the_remedy(
    spark: SparkSession, tmp_path: Path
) -> None:
    pq.write_table(ARROW.empty_table(), tmp_path / "0.parquet")
    frame = spark.readStream.format("abs-files").load(str(tmp_path))
    query = (
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "_c")).start
    )
    with pytest.raises(Exception, match="A stream needs the option log"):
        query().awaitTermination()
