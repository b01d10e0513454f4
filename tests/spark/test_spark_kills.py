"""Drivers that are killed, stopped and overtaken: the target holds every row exactly once.

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
from tests.spark.drivers import Driver, killed_at
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.places import Place
from tests.spark.world import WAYS, World

pytestmark = [pytest.mark.spark, pytest.mark.services]

NewWorld = Callable[[str], World]


def run(spark: SparkSession, world: World, job: Job) -> None:
    run_to_end(spark, job, world.url)


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


SAMPLED = ("postgres-wal", CrashPoint.AFTER_CO_COMMIT)
NEVER = {
    **{f"postgres-{way}": CO_COMMIT if way == "2pc" else TWO_STEP for way in WAYS},
    "s3-2pc": CO_COMMIT,
    # What is composed of so few rows is one file.
    "s3-wal": CO_COMMIT | {CrashPoint.BETWEEN_COMMITS},
    "s3-idempotent": TWO_STEP,
}
POINTS = [
    pytest.param(place, point, marks=() if (place, point) == SAMPLED else pytest.mark.campaign)
    for place, never in NEVER.items()
    for point in CrashPoint
    if point not in never | RARE
]


@pytest.mark.parametrize(("place", "point"), POINTS, indirect=["place"])
def test_a_crash_between_two_effects_is_healed(
    place: Place, point: CrashPoint, spark: SparkSession, tmp_path: Path
) -> None:
    """The driver's whole tree is killed as soon as one of its processes has died at the point."""
    # At random over two tasks: what is written again lies in other partitions then.
    job = replace(place.job, scramble=True)
    place.add()
    # The second time a process gets there, so that there is something to lose; a run starts once.
    nth = 1 if point is CrashPoint.AFTER_START else 2
    killed_at(point, nth, job, tmp_path / "first", place.url)
    run_to_end(spark, job, place.url)
    place.holds_all()
    assert place.left_behind() == []
    for newest in (1, 2):
        place.forget_commits(newest)
        run_to_end(spark, job, place.url)
    place.holds_all()
    assert place.left_behind() == []
    shutil.rmtree(job.scratch, ignore_errors=True)
