"""Spark writes tables of the lake: alone and beside PostgreSQL, through kills; others read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from tests import sample
from tests.kit.crash_points import CO_COMMIT, RARE
from tests.spark.drivers import killed_at
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.lake import Lake, put_files_around_1970
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.services]

FILES, ROWS = 4, 40
POINTS = sorted(set(CrashPoint) - CO_COMMIT - RARE)


def expected(files: int = FILES) -> Counter[int]:
    return Counter(number * 1000 + row for number in range(files) for row in range(ROWS))


@pytest.fixture(params=["delta", "iceberg", "hidden"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """The table of a job that is killed."""
    return Lake(request.param, tmp_path)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def alone(world: World, lake: Lake) -> Job:
    return replace(world.job, format=lake.format, options={**lake.options, "job": "job"})


def beside_postgres(world: World, lake: Lake) -> Job:
    return replace(
        world.job,
        options={"job": "job"},
        sinks=[
            {"format": "abs-postgres", "name": "rows", "options": {"dbtable": "t"}},
            {"format": lake.format, "name": "lake", "options": lake.options},
        ],
    )


@sample.cases(1, of="killed")
@pytest.mark.parametrize("point", sample.members(POINTS, 1, "lake alone"))
def test_killed_at_any_point_each_row_is_in_the_table_once(
    spark: SparkSession, new_world: Callable[[str], World], killed: Lake, point: CrashPoint
) -> None:
    world = new_world("2pc")
    put_files_around_1970(world, FILES, ROWS)
    job = alone(world, killed)
    killed_at(point, 1, job, world.folder / "killed")
    run_to_end(spark, job)
    assert killed.ids() == expected()
    world.forget_commits(FILES - 1)
    run_to_end(spark, replace(job, scramble=True))
    assert killed.ids() == expected(), "after a replay of an epoch that is committed"
    assert killed.staged() == []
    assert killed.wrong_partitions() == []


@pytest.mark.campaign  # the sample has one beside Kafka, too: test_spark_lake_beside.py
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_an_epoch_is_in_postgresql_and_in_the_table_or_in_none(
    spark: SparkSession, new_world: Callable[[str], World], killed: Lake, point: CrashPoint
) -> None:
    world = new_world("2pc")
    put_files_around_1970(world, FILES, ROWS)
    job = beside_postgres(world, killed)
    killed_at(point, 1, job, world.folder / "killed", world.url)
    run_to_end(spark, job, world.url)
    assert killed.ids() == expected()
    assert Counter(row[0] for row in world.rows()) == expected()
    assert world.left_behind() == []
    assert killed.wrong_partitions() == []
    assert killed.staged() == []


def test_a_batch_that_is_written_again_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    for token, times in (("tuesday", 2), ("monday", 1), ("tuesday", 1)):  # an older one later
        for _ in range(times):
            writer = spark.range(100).write.format(lake.format).mode("append")
            writer.options(**lake.given, job="batch", epoch=token).save()
    assert lake.ids() == Counter(list(range(100)) * 2)


def test_every_type_of_spark_that_the_table_has_is_read_back(
    spark: SparkSession, lake: Lake
) -> None:
    columns = [
        "id",
        "cast(id as byte) b",
        "cast(id as short) s",
        "cast(id as int) i",
        "cast(id as float) f",
        "cast(id as double) d",
        "cast(id as decimal(20, 3)) dec",
        "id = 1 as flag",
        "cast(id as string) t",
        "cast(cast(id as string) as binary) bin",
        "date_add(date'2026-01-01', cast(id as int)) day",
        "timestamp'2026-01-01 01:02:03.456789' ts",
        "timestamp_ntz'2026-01-01 01:02:03.456789' ntz",
        "struct(id as a, cast(null as string) as b) st",
        "array(id, null) l",
        "map('k', id) m",
    ]
    frame = spark.range(3).selectExpr(*columns)
    writer = frame.write.format(lake.format).mode("append")
    writer.options(**lake.given, partitionby="day,flag", job="types", epoch="1").save()
    read = lake.read().sort_by("id").to_pylist()
    rows = [row.asDict(recursive=True) for row in frame.orderBy("id").collect()]
    for mine, theirs in zip(read, rows, strict=True):
        assert mine.pop("ts").replace(tzinfo=None) == theirs.pop("ts")
        mine["m"], theirs["bin"] = dict(mine["m"]), bytes(theirs["bin"])
        assert mine == theirs


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_lines_of_the_page_write_a_table(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    """As they stand, but for the names of places: folders of this test."""
    lake = Lake(kind, tmp_path)
    [text] = [
        block.removeprefix("text\n")
        for block in PAGE.read_text().split("```")[1::2]
        if f'format("abs-{kind}")' in block
    ]
    places = {"/checkpoints/payments": str(tmp_path / "checkpoint")}
    if kind == "delta":
        places["s3://bucket/payments"] = str(lake.folder)
    else:
        places |= {
            '.option("catalog", "prod")': '.option("createtable", "true")',
            '"db.payments"': '"db.t"',
            '"catalog.type", "rest"': f'"catalog.type", "{lake.catalog["type"]}"',
            "https://catalog.example": lake.catalog["uri"],
            ".start()": f'.option("catalog.warehouse", "{lake.catalog["warehouse"]}").start()',
        }
    for name, place in places.items():
        assert name in text
        text = text.replace(name, place)
    landing = tmp_path / "landing"
    spark.range(5).selectExpr("id", "'a' day").coalesce(1).write.json(str(landing))
    payments = spark.readStream.schema("id long, day string").json(str(landing))
    query = eval(f"({text})", {"payments": payments})
    query.processAllAvailable()
    query.stop()
    assert sorted(lake.read()["id"].to_pylist()) == [0, 1, 2, 3, 4]
