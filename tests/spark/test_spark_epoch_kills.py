"""Drivers killed while an epoch goes to three targets: then it is in all of them once, or in none.

By turns with other files, see ``tests.spark.drivers``; in the campaign all.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from tests.kit.crash_points import CO_COMMIT, RARE
from tests.spark.drivers import killed_at
from tests.spark.epoch_world import EpochWorld, once
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.overtaking import both_go_on, one_stands_still

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
    holds_all(world)


def holds_all(world: EpochWorld) -> None:
    expected = once(ids())
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
    assert world.left_behind() == []


def killed(world: EpochWorld, job: Job, point: CrashPoint, nth: int) -> None:
    world.files.add_files(range(FILES), ROWS)
    killed_at(point, nth, job, world.files.folder / "killed", world.files.url)


@pytest.mark.parametrize(
    ("protocol", "way"),
    [
        ("2pc", one_stands_still),
        pytest.param("wal", one_stands_still, marks=pytest.mark.campaign),
        pytest.param("2pc", both_go_on, marks=pytest.mark.campaign),
    ],
)
def test_of_two_drivers_on_copies_of_one_checkpoint_one_writes_to_all_targets(
    spark: SparkSession, world: EpochWorld, protocol: str, way: Callable[..., None]
) -> None:
    way(spark, world.files, world.job(protocol, continuous=True), FILES, ROWS, world.files.url)
    holds_all(world)


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
