"""Drivers killed while an epoch goes to three targets: then it is in all of them once, or in none.

By turns with other files, see ``tests.spark.drivers``; in the campaign all.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from tests.kit.crash_points import CO_COMMIT, RARE
from tests.spark.drivers import Driver, killed_at, until
from tests.spark.epoch_world import EpochWorld, once
from tests.spark.jobs.stream_files import Job, run_to_end, start

# ``store`` puts the bucket's keys into the environment, which drivers inherit.
pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.usefixtures("store")]

FILES = 4
ROWS = 40
POINTS = sorted(set(CrashPoint) - CO_COMMIT - RARE)
# A process passes each of them more than once, but a run starts once.
PASSAGES = [(point, nth) for point in POINTS for nth in (1, 2, 3)]
PASSAGES = [(p, nth) for p, nth in PASSAGES if nth == 1 or p is not CrashPoint.AFTER_START]
SAMPLED = (CrashPoint.BETWEEN_COMMITS, 1, "2pc")
KILLS = [
    pytest.param(*kill, marks=() if kill == SAMPLED else pytest.mark.campaign)
    for kill in ((point, nth, protocol) for point, nth in PASSAGES for protocol in ("2pc", "wal"))
]


def ids(files: int = FILES) -> list[int]:
    return [number * 1000 + row for number in range(files) for row in range(ROWS)]


def go_on(spark: SparkSession, world: EpochWorld, job: Job) -> None:
    """Restart in the shared session, which is as good as any other; then look at all targets."""
    run_to_end(spark, job, world.files.url)
    expected = once(ids())
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
    assert world.left_behind() == []


def killed(world: EpochWorld, job: Job, point: CrashPoint, nth: int) -> None:
    world.files.add_files(range(FILES), ROWS)
    killed_at(point, nth, job, world.files.folder / "killed", world.files.url)


@pytest.mark.parametrize(
    "protocol",
    [
        "2pc",
        pytest.param("wal", marks=pytest.mark.campaign),
    ],
)
def test_a_driver_that_stood_still_while_another_went_on_changes_no_target(
    spark: SparkSession, world: EpochWorld, protocol: str
) -> None:
    world.files.add_files(range(2), ROWS)
    job = world.job(protocol, continuous=True)
    with Driver(job, world.files.folder / "stopped", world.files.url) as driver:
        driver.wait_until(lambda: (world.checkpoint / "commits" / "1").exists(), "it is idle")
        driver.stop()
        other = world.files.with_checkpoint_copy("other")
        world.files.add_files(range(2, FILES), ROWS)  # it has work to do as soon as it goes on
        other.forget_commits(1)
        given = replace(job, continuous=False, checkpoint=str(other.checkpoint))
        run_to_end(spark, given, world.files.url)
        driver.go_on()
        assert driver.end() == 1
        assert "FencedError" in driver.log
    expected = once(ids())
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
    assert world.left_behind() == []


@pytest.mark.parametrize(("point", "nth", "protocol"), KILLS)
def test_killed_anywhere_an_epoch_is_in_all_targets_once(
    spark: SparkSession, world: EpochWorld, point: CrashPoint, nth: int, protocol: str
) -> None:
    job = world.job(protocol, scramble=True)
    killed(world, job, point, nth)
    shown = world.ids().values()
    if point is CrashPoint.BETWEEN_COMMITS and nth == 1:
        assert len({counted.total() for counted in shown}) > 1, "all were committed"
    if point is CrashPoint.AFTER_PRE_COMMIT and nth < 3:
        assert not any(shown), "a target shows an epoch that is not decided"
    go_on(spark, world, job)


@pytest.mark.campaign
def test_of_two_drivers_on_copies_of_one_checkpoint_one_writes(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(2), ROWS)
    job = world.job(continuous=True)
    with Driver(job, world.files.folder / "first", world.files.url) as driver:
        commits = world.checkpoint / "commits"
        driver.wait_until(lambda: (commits / "1").exists(), "it is idle")
        newer = world.files.with_checkpoint_copy("newer")
        newer.forget_commits(1)  # so that it has something to do, and takes over
        newest = world.job(continuous=True, checkpoint=str(newer.checkpoint), input=job.input)
        query = start(spark, newest, world.files.url)
        until(lambda: world.register().generation == 2, "the newer driver has taken over")
        world.files.add_files(range(2, FILES), ROWS)
        assert driver.end() == 1
        assert "FencedError" in driver.log
        until(lambda: world.register().frontier == FILES - 1, "the newer has written the rest")
        query.stop()
    expected = once(ids())
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
