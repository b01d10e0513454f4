"""Drivers that are killed, stopped and overtaken: the table holds every row exactly once.

By turns with other files, see ``tests.spark.drivers``; in the campaign all.

Every driver that dies is a process tree of its own; what goes on after it runs in the shared session,
which is as good a restart as any other and saves the start of a JVM.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from tests.kit.crash_points import CO_COMMIT, RARE, TWO_STEP
from tests.spark.drivers import Driver, killed_at, until
from tests.spark.jobs.stream_files import Job, run_to_end, start
from tests.spark.world import WAYS, World

pytestmark = [pytest.mark.spark, pytest.mark.services]

NewWorld = Callable[[str], World]


def run(spark: SparkSession, world: World, job: Job) -> None:
    run_to_end(spark, job, world.url)


@pytest.mark.campaign
def test_a_job_killed_with_all_its_processes_goes_on_where_it_was(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    # At random over two tasks: what is written again lies in other partitions then.
    job = replace(world.job, scramble=True)
    expected = world.add_files(range(8))
    with Driver(replace(job, continuous=True), world.folder / "first", world.url) as driver:
        driver.wait_until(lambda: world.frontier() >= 1 and world.in_doubt() > 0, "it is in doubt")
        driver.kill()
    assert 0 < world.count() < len(expected)
    run(spark, world, job)
    world.holds(expected)
    assert world.left_behind() == []


@pytest.mark.campaign
def test_of_two_drivers_on_copies_of_one_checkpoint_the_newer_wins_and_the_older_stops(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("wal")
    expected = world.add_files(range(2))
    with Driver(replace(world.job, continuous=True), world.folder / "first", world.url) as driver:
        driver.wait_until(lambda: (world.checkpoint / "commits" / "1").exists(), "it is idle")
        newer = world.with_checkpoint_copy("newer")
        newer.forget_commits(1)  # so that it has something to do, and takes over
        job = replace(world.job, checkpoint=str(newer.checkpoint))
        query = start(spark, replace(job, continuous=True), world.url)
        until(lambda: world.generation() == 2, "the newer driver has taken over")
        expected += world.add_files(range(2, 4))
        assert driver.end() == 1
        assert "abs_core.errors.FencedError: A newer run has taken over" in driver.log
        until(lambda: world.frontier() >= 3, "the newer driver has written the rest")
        query.stop()
    world.holds(expected)
    assert world.left_behind() == []


def test_a_driver_that_stood_still_while_it_was_overtaken_changes_nothing(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(12))
    with Driver(
        replace(world.job, continuous=True, tasks=2), world.folder / "first", world.url
    ) as driver:
        driver.wait_until(lambda: world.frontier() >= 1 and world.in_doubt() > 0, "it is in doubt")
        driver.stop()
        overtaking = world.with_checkpoint_copy("overtaking")
        job = replace(world.job, checkpoint=str(overtaking.checkpoint))
        run(spark, world, job)
        world.holds(expected)
        driver.go_on()
        assert driver.end() == 1
        assert "abs_core.errors.FencedError" in driver.log
        world.holds(expected)
        expected += world.add_file(12)
        run(spark, world, job)
    world.holds(expected)
    assert world.left_behind() == []


SAMPLED = ("wal", CrashPoint.AFTER_CO_COMMIT)
POINTS = [
    pytest.param(way, point, marks=() if (way, point) == SAMPLED else pytest.mark.campaign)
    for way in WAYS
    for point in CrashPoint
    if point not in RARE
    and not (point in TWO_STEP and way != "2pc")
    and not (point in CO_COMMIT and way == "2pc")
]


@pytest.mark.parametrize(("way", "point"), POINTS)
def test_a_crash_between_two_effects_is_healed(
    way: str, point: CrashPoint, new_world: NewWorld, spark: SparkSession, tmp_path: Path
) -> None:
    crash_and_recover(new_world(way), point, spark, tmp_path)


def crash_and_recover(world: World, point: CrashPoint, spark: SparkSession, folder: Path) -> None:
    """Kill the driver's whole tree as soon as one of its processes has died at the point."""
    job = replace(world.job, scramble=True)
    expected = world.add_files(range(3))
    # The second time a process gets there, so that there is something to lose; a run starts once.
    nth = 1 if point is CrashPoint.AFTER_START else 2
    killed_at(point, nth, job, folder / "first", world.url)
    run(spark, world, job)
    world.holds(expected)
    assert world.left_behind() == []
    for newest in (1, 2):
        world.forget_commits(newest)
        run(spark, world, job)
    world.holds(expected)
    assert world.left_behind() == []
    shutil.rmtree(world.folder / "scratch", ignore_errors=True)
