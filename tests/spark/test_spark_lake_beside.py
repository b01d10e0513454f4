"""Killed drivers write each epoch to PostgreSQL, Kafka and a table of the lake, beside its compaction.

Foreign readers then see each row once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from abs_testing.case import within
from tests.kit.crash_points import CO_COMMIT, RARE
from tests.sinks.lake.tending import Beside
from tests.spark.drivers import killed_at
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.lake import Lake, put_files_around_1970
from tests.spark.overtaking import both_go_on, one_stands_still
from tests.spark.tending import Tending
from tests.spark.three import FILES, ROWS, Three, expected
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.services]

KINDS = ("delta", "iceberg")
POINTS = sorted(set(CrashPoint) - CO_COMMIT - RARE)


def killed_beside(spark: SparkSession, three: Three, point: CrashPoint, nth: int) -> None:
    put_files_around_1970(three.files, FILES, ROWS)
    job = three.job()
    with Beside(three.lake.tend) as others:
        killed_at(point, nth, job, three.files.folder / "killed", three.files.url)
        run_to_end(spark, job, three.files.url)
        assert within(60, lambda: others.done[0] > 0)
    three.holds(expected())
    three.files.forget_commits(FILES - 1)
    run_to_end(spark, job, three.files.url)
    three.holds(expected())


# The sample kills one that writes to the other kind of table alone: test_spark_lake.py.
@pytest.mark.parametrize("kind", [pytest.param("delta", marks=pytest.mark.campaign), "iceberg"])
def test_killed_between_two_commits_while_the_table_is_compacted_each_row_is_everywhere_once(
    spark: SparkSession, new_three: Callable[..., Three], kind: str
) -> None:
    killed_beside(spark, new_three(kind), CrashPoint.BETWEEN_COMMITS, 2)


@pytest.mark.campaign
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_each_row_is_in_the_partition_that_spark_has_for_it(
    spark: SparkSession, new_three: Callable[..., Three], tmp_path: Path, point: CrashPoint
) -> None:
    """Days before 1970, buckets, truncated words; while pyiceberg compacts the table."""
    three = new_three("hidden")
    killed_beside(spark, three, point, 1)
    ids, wrong = three.lake.wrong_in_spark(tmp_path / "asked")
    assert (ids, wrong) == (expected(), [])


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_while_the_table_is_compacted_each_row_is_everywhere_once(
    spark: SparkSession, new_three: Callable[..., Three], kind: str, point: CrashPoint
) -> None:
    killed_beside(spark, new_three(kind), point, 1)


# In the sample: such drivers into PostgreSQL and into three targets, and the contract's rules of
# zombies on both kinds of tables.
@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [one_stands_still, both_go_on])
def test_of_two_drivers_on_copies_of_one_checkpoint_one_writes_to_the_table(
    spark: SparkSession,
    new_world: Callable[[str], World],
    tmp_path: Path,
    way: Callable[..., None],
    kind: str,
) -> None:
    """Both have the table's own register."""
    world, lake = new_world("2pc"), Lake(kind, tmp_path)
    way(spark, world, alone(world, lake), FILES, ROWS)
    assert lake.ids() == expected()
    assert lake.staged() == []


def alone(world: World, lake: Lake) -> Job:
    given = {**lake.given, "job": "job"}
    return replace(world.job, format=lake.format, options=given, continuous=True)


PREPARED = (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE)
"""An epoch's files are prepared, and none is completed: before its decision, and after it."""


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", PREPARED)
def test_sparks_own_compaction_and_cleaning_beside_a_killed_job_lose_and_double_nothing(
    spark: SparkSession,
    new_world: Callable[[str], World],
    tmp_path: Path,
    kind: str,
    point: CrashPoint,
) -> None:
    """They are delta-spark's and iceberg-spark's, with the shortest retention; they read it, too."""
    world, lake = new_world("2pc"), Lake(kind, tmp_path)
    world.add_files(range(2), ROWS)
    job = replace(alone(world, lake), continuous=False)
    run_to_end(spark, job)
    with Tending(kind, lake.given, tmp_path / "tending") as others:
        world.add_files(range(2, FILES), ROWS)
        killed_at(point, 1, job, world.folder / "killed")
        staged = lake.staged()
        assert staged
        others.clean()
        assert sorted(lake.staged()) == sorted(staged)
        run_to_end(spark, job)
        told = others.result()
    assert told["done"] > 0
    assert Counter(told["ids"]) == lake.ids() == expected()
    assert lake.staged() == []
