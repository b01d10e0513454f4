"""Batch writes: one epoch, named by a token. Written again, it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import psycopg
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from abs_core.model import job_key
from tests import sample
from tests.spark.world import WAYS, World

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(2)]

NewWorld = Callable[[str], World]


def save(
    frame: DataFrame, world: World, epoch: str | None = "e1", mode: str = "append", **more: str
) -> None:
    writer = frame.write.format("abs-postgres").mode(mode).options(**world.job.options)
    if epoch is not None:
        writer = writer.option("epoch", epoch)
    writer.options(**{"url": world.url, **more}).save()


@pytest.mark.parametrize("way", sample.members(WAYS, 2, "batches that come again"))
def test_the_same_batch_again_changes_nothing_in_any_order_and_partitioning(
    way: str, new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world(way)
    expected = world.add_files(range(2))
    frame = spark.read.parquet(world.job.input)
    save(frame, world)
    world.holds(expected)
    save(frame.repartition(3, f.rand()).orderBy(f.rand()), world)
    world.holds(expected)
    fewer = frame.where("id <> 3")
    with pytest.raises(AnalysisException, match=r"written before, with other rows: it has \d+"):
        save(fewer, world)
    world.holds(expected)
    if way == "2pc":  # another token is another batch
        save(frame, world, epoch="e2")
        world.holds(expected + expected)
        save(frame, world, epoch="e1")
        world.holds(expected + expected)
    assert world.left_behind(job_key("job", "e1")) == []


def test_a_batch_with_a_bad_row_leaves_nothing_and_can_be_mended(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    frame = spark.read.parquet(world.job.input).repartition(2, "id")
    bad = frame.withColumn("word", f.expr("if(id = 7, concat(word, char(0)), word)"))
    with pytest.raises(Exception, match=r"RowError.*word"):
        save(bad, world)
    world.holds([])
    save(frame, world)
    world.holds(expected)
    assert world.left_behind(job_key("job", "e1")) == []


def test_a_batch_without_rows_is_an_epoch(new_world: NewWorld, spark: SparkSession) -> None:
    world = new_world("2pc")
    world.add_file(0)
    frame = spark.read.parquet(world.job.input)
    save(spark.createDataFrame([], frame.schema), world)
    assert world.frontier(job_key("job", "e1")) == 0
    with pytest.raises(AnalysisException, match=r"written before, with other rows: it has \d+"):
        save(frame, world)
    world.holds([])


def test_a_batch_that_cannot_be_is_refused_before_anything_is_written(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    world.add_file(0)
    frame = spark.read.parquet(world.job.input)
    for match, epoch, mode, more in (
        ("job and epoch; missing: epoch", None, "append", {}),
        ("mode overwrite would drop", "e1", "overwrite", {}),
        ("did you mean dbtable", "e1", "append", {"dbtabel": "t"}),
        ("option url is not a connection string", "e1", "append", {"url": "::"}),
        (
            "UnavailableError",
            "e1",
            "append",
            {"url": "postgresql://127.0.0.1:1/x", "patience": "1s"},
        ),
    ):
        with pytest.raises(AnalysisException, match=match):
            save(frame, world, epoch, mode, **more)
    narrow = frame.drop("word")
    world.alter("alter column word set not null")
    with pytest.raises(AnalysisException, match=r'column "word" text NOT NULL .* is missing in'):
        save(narrow, world)
    wide = frame.withColumn("extra", f.lit(1)).withColumn("id", f.lit("text"))
    with pytest.raises(AnalysisException, match=r'(?s)column "extra".*not in the table'):
        save(wide, world)
    world.holds([])
    assert world.state(job_key("job", "e1")) is None


def test_sparks_types_reach_the_table_unchanged(new_world: NewWorld, spark: SparkSession) -> None:
    world = new_world("2pc")
    columns = {
        "tiny": ("cast(-128 as tinyint)", "smallint", -128),
        "day": ("date'2026-02-28'", "date", datetime(2026, 2, 28).date()),  # noqa: DTZ001
        "at": (
            "timestamp'2026-07-01 12:00:00+02:00'",
            "timestamptz",
            datetime(2026, 7, 1, 10, tzinfo=UTC),
        ),
        "local": (
            "timestamp_ntz'2026-07-01 12:00:00.000001'",
            "timestamp",
            datetime(2026, 7, 1, 12, 0, 0, 1),  # noqa: DTZ001
        ),
        "raw": ("X'00FF'", "bytea", b"\x00\xff"),
        "yes": ("true", "boolean", True),
        "price": ("cast('12345.6789' as decimal(20,4))::string", "text", "12345.6789"),
        "many": ("array(1, null, 3)", "integer[]", [1, None, 3]),
        "nested": ("named_struct('a', 1, 'b', array('x'))", "jsonb", {"a": 1, "b": ["x"]}),
    }
    with psycopg.connect(world.url, autocommit=True) as connection:
        listed = ", ".join(f"{name} {kind}" for name, (_, kind, _) in columns.items())
        connection.execute(f"create table types ({listed})")
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            expressions = [f"{value} as {name}" for name, (value, _, _) in columns.items()]
            save(spark.range(1).selectExpr(*expressions), world, dbtable="types")
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        connection.execute("set time zone 'UTC'")
        found = connection.execute("select * from types").fetchall()
    assert found == [tuple(value for _, _, value in columns.values())]
