"""Spark writes Delta tables: alone and beside PostgreSQL, through kills; deltalake reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from tests import sample
from tests.kit.crash_points import CO_COMMIT, RARE
from tests.spark.drivers import killed_at
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.services]

FILES, ROWS = 4, 40
POINTS = sorted(set(CrashPoint) - CO_COMMIT - RARE)


def expected(files: int = FILES) -> Counter[int]:
    return Counter(number * 1000 + row for number in range(files) for row in range(ROWS))


def delta_options(world: World) -> dict[str, str]:
    path = str(world.folder / "table")
    return {"path": path, "createtable": "true", "partitionby": "word"}


def in_table(world: World) -> Counter[int]:
    """What a foreign reader sees."""
    return Counter(DeltaTable(str(world.folder / "table")).to_pyarrow_table()["id"].to_pylist())


def alone(world: World) -> Job:
    options = {**delta_options(world), "job": "job"}
    return replace(world.job, format="abs-delta", options=options)


def beside_postgres(world: World) -> Job:
    return replace(
        world.job,
        options={"job": "job"},
        sinks=[
            {"format": "abs-postgres", "name": "rows", "options": {"dbtable": "t"}},
            {"format": "abs-delta", "name": "lake", "options": delta_options(world)},
        ],
    )


def staged(world: World) -> list[str]:
    return [path.name for path in (world.folder / "table" / "_abs" / "staged").glob("*")]


@pytest.mark.parametrize("point", sample.members(POINTS, 1, "delta alone"))
def test_killed_at_any_point_each_row_is_in_the_table_once(
    spark: SparkSession, new_world: Callable[[str], World], point: CrashPoint
) -> None:
    world = new_world("2pc")
    world.add_files(range(FILES), ROWS)
    job = alone(world)
    killed_at(point, 1, job, world.folder / "killed")
    run_to_end(spark, job)
    assert in_table(world) == expected()
    world.forget_commits(FILES - 1)
    run_to_end(spark, replace(job, scramble=True))
    assert in_table(world) == expected(), "after a replay of an epoch that is committed"
    assert staged(world) == []
    spark.read.parquet(str(world.folder / "table" / "word=*")).count()


@pytest.mark.parametrize("point", sample.members(POINTS, 1, "delta beside"))
def test_killed_at_any_point_an_epoch_is_in_postgresql_and_in_the_table_or_in_none(
    spark: SparkSession, new_world: Callable[[str], World], point: CrashPoint
) -> None:
    _beside(spark, new_world("2pc"), point)


def test_killed_between_the_commits_of_database_and_table_the_rest_is_committed(
    spark: SparkSession, new_world: Callable[[str], World]
) -> None:
    _beside(spark, new_world("2pc"), CrashPoint.BETWEEN_COMMITS)


def _beside(spark: SparkSession, world: World, point: CrashPoint) -> None:
    world.add_files(range(FILES), ROWS)
    job = beside_postgres(world)
    killed_at(point, 1, job, world.folder / "killed", world.url)
    run_to_end(spark, job, world.url)
    assert in_table(world) == expected()
    assert Counter(row[0] for row in world.rows()) == expected()
    assert world.left_behind() == []
    assert staged(world) == []


def test_a_batch_that_is_written_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for token, times in (("monday", 2), ("tuesday", 1)):
        for _ in range(times):
            writer = spark.range(100).write.format("abs-delta").mode("append")
            writer.options(path=path, createtable="true", job="batch", epoch=token).save()
    found = DeltaTable(path).to_pyarrow_table()["id"].to_pylist()
    assert Counter(found) == Counter(list(range(100)) * 2)


def test_every_type_of_spark_that_delta_has_is_read_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
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
    writer = frame.write.format("abs-delta").mode("append")
    writer.options(
        path=path, createtable="true", partitionby="day,flag", job="types", epoch="1"
    ).save()
    files = pa.concat_tables(
        [pq.read_table(uri, partitioning=None) for uri in DeltaTable(path).file_uris()]
    )
    assert files.num_rows == 3
    read = DeltaTable(path).to_pyarrow_table().sort_by("id").to_pylist()
    rows = [row.asDict(recursive=True) for row in frame.orderBy("id").collect()]
    for mine, theirs in zip(read, rows, strict=True):
        assert mine.pop("ts").replace(tzinfo=None) == theirs.pop("ts")
        mine["m"], theirs["bin"] = dict(mine["m"]), bytes(theirs["bin"])
        assert mine == theirs
