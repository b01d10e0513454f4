"""Streams as people write them: stateful ones, several at once, ones that change between runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import abs_spark
from abs_spark.foreach.function import Epoch
from tests import sample
from tests.spark.world import World, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(3)]

SCHEMA = "id bigint, word string, at timestamp"


@pytest.fixture
def world(new_world: Callable[[str], World]) -> World:
    return new_world("2pc")


def read(spark: SparkSession, world: World, schema: str = SCHEMA) -> DataFrame:
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1")
    return reader.parquet(world.job.input)


def into(world: World, table: str = "t", job: str = "job", **options: str) -> Epoch:
    given = {"url": world.url, "dbtable": table, **options}
    checkpoint = str(world.folder / f"checkpoint-{job}")
    sink = abs_spark.sink("abs-postgres", given)
    return abs_spark.epoch(sink, job=job, checkpointLocation=checkpoint)


def run(
    rows: DataFrame, world: World, function: Epoch, job: str = "job", mode: str = "append"
) -> None:
    """Run the query to its end, lose the newest note of what was committed, and run it again."""
    checkpoint = world.folder / f"checkpoint-{job}"
    for again in (False, True):
        if again:
            commits = checkpoint / "commits"
            newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
            (commits / str(newest)).unlink()
            (commits / f".{newest}.crc").unlink(missing_ok=True)
        writer = rows.writeStream.outputMode(mode).foreachBatch(function)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()


def make(world: World, columns: str, table: str) -> None:
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute(f"create table {table} ({columns})")


def held(world: World, what: str) -> Counter[Any]:
    with psycopg.connect(world.url, autocommit=True) as connection:
        return Counter(connection.execute(what).fetchall())


def ids(files: Iterable[int]) -> list[int]:
    return [row[0] for file in files for row in rows_of(file)]


def test_a_watermarked_aggregation_writes_each_window_once(
    spark: SparkSession, world: World
) -> None:
    make(world, "second timestamptz, count bigint", "windows")
    world.add_files(range(4))
    windows = f.window("at", "10 seconds")
    counted = read(spark, world).withWatermark("at", "1 second").groupBy(windows).count()
    rows = counted.selectExpr("window.start as second", "count")
    run(rows, world, into(world, "windows"))
    first = "extract(epoch from second - '2026-01-01 00:00:00+00')::bigint"
    closed = [n for n in ids(range(4)) if n < 3030]  # the watermark is one second behind 3039
    expected = Counter(n // 10 * 10 for n in closed)
    found = held(world, f"select {first}, count from windows")
    assert found == Counter(dict.fromkeys(expected.items(), 1))


def test_rows_without_duplicates_are_written_once(spark: SparkSession, world: World) -> None:
    world.add_files(range(2))
    world.put(7, pa.Table.from_pylist([{"id": i, "word": w, "at": a} for i, w, a in rows_of(1)]))
    run(read(spark, world).dropDuplicates(["id"]), world, into(world))
    assert held(world, "select id from t") == Counter((n,) for n in ids(range(2)))


def test_a_join_of_two_streams_writes_each_pair_once(spark: SparkSession, world: World) -> None:
    world.add_files(range(3))
    left = read(spark, world).withWatermark("at", "1 hour").alias("l")
    right = read(spark, world).withWatermark("at", "1 hour").alias("r")
    joined = left.join(right, f.expr("l.id = r.id and l.at = r.at")).select("l.*")
    run(joined, world, into(world))
    assert held(world, "select id from t") == Counter((n,) for n in ids(range(3)))


def test_several_queries_of_one_session_do_not_mix(spark: SparkSession, world: World) -> None:
    world.add_files(range(4))
    queries = []
    for number in range(3):
        make(world, "id bigint, word text, at timestamptz", f"t{number}")
        job = f"job{number}"
        writer = read(spark, world).where(f"id % 3 = {number}").writeStream
        writer = writer.foreachBatch(into(world, f"t{number}", job))
        checkpoint = str(world.folder / f"checkpoint-{job}")
        queries.append(
            writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
    for number, query in enumerate(queries):
        query.awaitTermination()
        expected = Counter((n,) for n in ids(range(4)) if n % 3 == number)
        assert held(world, f"select id from t{number}") == expected


def test_a_column_that_came_between_two_runs_is_written_from_then_on(
    spark: SparkSession, world: World
) -> None:
    world.add_files(range(2))
    run(read(spark, world), world, into(world))
    world.alter("add column price numeric(6,2)")
    table = pa.table({"id": [9000], "word": ["new"], "price": pa.array([1.5], pa.float64())})
    world.put(9, table)
    wider = read(spark, world, f"{SCHEMA}, price double")
    run(
        wider.selectExpr("id", "word", "at", "cast(price as decimal(6,2)) price"),
        world,
        into(world),
    )
    assert held(world, "select id from t") == Counter((n,) for n in [*ids(range(2)), 9000])
    assert held(world, "select price::text from t where price is not null") == {("1.50",): 1}


def test_a_stream_goes_on_where_a_back_fill_ends(spark: SparkSession, world: World) -> None:
    """Files up to a day by a batch with a token of its own; what comes after it by the stream."""
    world.add_files(range(2))
    old = spark.read.schema(SCHEMA).parquet(world.job.input)
    backfill = (
        old.write.format("abs-postgres")
        .mode("append")
        .options(url=world.url, dbtable="t", job="backfill", epoch="until-2")
    )
    backfill.save()
    backfill.save()  # a scheduler's second try
    world.add_files(range(2, 4))
    run(read(spark, world).where("id >= 2000"), world, into(world))
    assert held(world, "select id from t") == Counter((n,) for n in ids(range(4)))


@pytest.mark.parametrize("bypass", [False, True])
def test_real_time_mode_is_refused_and_nothing_is_written(
    spark: SparkSession, world: World, bypass: bool
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("value as id")
    writer = rows.writeStream.outputMode("update").foreachBatch(into(world))
    checkpoint = str(world.folder / "checkpoint-job")
    writer = writer.option("checkpointLocation", checkpoint).trigger(realTime="5 seconds")  # type: ignore[call-overload]
    setting = "spark.sql.streaming.realTimeMode.allowlistCheck"
    spark.conf.set(setting, str(not bypass).lower())
    try:
        with pytest.raises((IllegalArgumentException, StreamingQueryException)) as refused:
            writer.start().awaitTermination()
    finally:
        spark.conf.unset(setting)
    assert "ForeachBatchSink" in str(refused.value)
    assert not held(world, "select id from t")


def test_continuous_processing_is_refused_and_nothing_is_written(
    spark: SparkSession, world: World
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("value as id")
    checkpoint = str(world.folder / "checkpoint-job")
    writer = rows.writeStream.option("checkpointLocation", checkpoint).foreachBatch(into(world))
    with pytest.raises(Exception, match="ontinuous"):  # Spark's own
        writer.trigger(continuous="1 second").start().awaitTermination()
    assert not held(world, "select id from t")


def test_another_bound_of_an_epoch_at_a_restart_writes_each_row_once(
    spark: SparkSession, world: World
) -> None:
    """``maxFilesPerTrigger`` changes between runs, the last epoch of each comes again."""
    for first, files in ((0, "1"), (4, "4"), (8, "2")):
        world.add_files(range(first, first + 4))
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files)
        run(reader.parquet(world.job.input), world, into(world))
    assert held(world, "select id from t") == Counter((n,) for n in ids(range(12)))
