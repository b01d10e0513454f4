"""The format abs-files in Spark: streams over kills and replays, batches, what Spark would read."""

from __future__ import annotations

import json
import os
import random
import re
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


def snippet(page: str, mark: str) -> str:
    """The fenced Python on a page of the docs that contains the mark."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    (found,) = [one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if mark in one]
    return str(found)


@pytest.mark.spark
def test_the_steps_out_of_a_damaged_file_lead_out_and_the_log_records_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As docs/how-to/when-it-stops.md has them: what each error names is what the next start takes."""
    landing, checkpoint, out = (tmp_path / name for name in ("landing", "checkpoint", "out"))
    landing.mkdir()
    (landing / "a.json").write_text('{"id":1,"word":"w"}\n{"id"')
    (landing / "b.json").write_text('{"id":9,"word":"w"}\n')
    page = snippet("how-to/when-it-stops.md", '.option("adopt"')
    page = page.replace("/checkpoints/job", str(checkpoint))
    page = page.replace("/data/landing", str(landing))

    def runs(token: str | None = None) -> None:
        code = page.replace("TOKEN", token) if token else re.sub(r".*adopt.*\n", "", page)
        names: dict[str, DataFrame] = {}
        exec(code, {"spark": spark}, names)
        writer = names["rows"].writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start(str(out))
        query.awaitTermination()

    def refused(token: str | None = None) -> list[str]:
        with pytest.raises(StreamingQueryException) as error:
            runs(token)
        return list(dict.fromkeys(re.findall(r"adopt=([0-9a-f]{12})", str(error.value))))

    def read() -> list[int]:
        return sorted(row.id for row in spark.read.parquet(str(out)).collect())

    (give_up,) = refused()
    (landing / "a.json").write_text('{"id":1,"word":"w"}\n{"id":2,"word":"w"}\n')
    also, anew = refused()
    assert also == give_up
    runs(anew)
    assert read() == [1, 2, 9]
    (landing / "c.json").write_text('{"id":"')
    (landing / "d.json").write_text('{"id":4,"word":"w"}\n')
    (damaged,) = refused()
    (landing / "c.json").unlink()
    assert refused() == [damaged]  # gone: the same way out
    runs(damaged)
    (landing / "c.json").write_text('{"id":3,"word":"w"}\n')  # given up: it stays out
    (landing / "e.json").write_text('{"id":5,"word":"w"}\n')
    runs()
    assert read() == [1, 2, 4, 5, 9]
    kept = sorted((checkpoint / "abs-files").glob("consent-*"))
    assert [json.loads(one.read_text())["consent"] for one in kept] == [anew, damaged]


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin"])
def test_folders_of_moments_that_spark_wrote_are_read_in_its_zone_or_refused(
    zone: str, spark: SparkSession, tmp_path: Path
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.sql("select 1 id, timestamp'2026-01-02T03:04:05Z' at")
        rows.write.partitionBy("at").parquet(str(tmp_path / "t"))
        reader = spark.read.format("abs-files").schema("id int, at timestamp")
        with pytest.raises(Exception, match="timeZone"):
            reader.load(str(tmp_path / "t")).collect()
        found = reader.option("timeZone", zone).load(str(tmp_path / "t"))
        micros = found.selectExpr("unix_micros(at) m").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert [row.m for row in micros] == [1_767_323_045_000_000]
