"""A real cluster: three targets stay exact whatever of it is killed or stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from abs_services import S3Service
from tests.spark.bucket import Bucket
from tests.spark.cluster import Cluster
from tests.spark.drivers import Driver
from tests.spark.epoch_world import EpochWorld, once
from tests.spark.jobs.stream_files import Job

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.timeout(1200),
]

FILES, MORE, ROWS = 3, 3, 40


@pytest.fixture
def cluster(store: S3Service, tmp_path: Path) -> Iterator[Cluster]:
    """``store`` puts the bucket's keys into the environment, which workers inherit."""
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def bucket(store: S3Service, prefix: str) -> Bucket:
    """Its keys are in the environment, which drivers inherit."""
    return Bucket(store, prefix)


Fault = Callable[[Driver], range | None]
"""Lets something happen while a driver runs; the ids of a file that it has added, if it has."""


def run_through(world: EpochWorld, conf: dict[str, str], folder: Path, fault: Fault) -> None:
    """Run the job, let the fault happen, and look at all targets.

    The driver that has met the fault is killed in the end, and another one goes on.
    """
    files = list(range(FILES))
    world.files.add_files(files, ROWS)
    with Driver(world_job(world, conf), folder / "first", world.files.url) as driver:
        driver.wait_until(lambda: world.files.frontier() >= 0, "an epoch is committed", every=0.2)
        added = fault(driver) or range(0)
        files += range(FILES, FILES + MORE)
        world.files.add_files(files[FILES:], ROWS)
        last = len(files) - (0 if added else 1)
        driver.wait_until(lambda: world.files.frontier() >= last, "all is written", every=0.2)
        world.files.add_file(len(files), ROWS)
        files.append(len(files))
        driver.kill()
    # Without speculation: the copies that lose in a query's last epoch are killed with what they have
    # open, and Kafka's transactions of theirs stay until the next start, as the guarantee says.
    again = world_job(world, {**conf, "spark.speculation": "false"}, continuous=False)
    with Driver(again, folder / "second", world.files.url) as driver:
        assert driver.end() == 0, driver.log[-4000:]
    expected = once([*added, *(f * 1000 + row for f in files for row in range(ROWS))])
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
    assert world.left_behind() == []


def world_job(world: EpochWorld, conf: dict[str, str], *, continuous: bool = True) -> Job:
    return world.job(tasks=4, scramble=True, continuous=continuous, conf=conf)


@pytest.mark.campaign
def test_an_executor_and_the_driver_are_killed(
    world: EpochWorld, cluster: Cluster, tmp_path: Path
) -> None:
    def kill(driver: Driver) -> None:
        victim = cluster.executors()[0]
        victim.kill()
        driver.wait_until(lambda: not victim.is_running(), "the executor is gone")

    run_through(world, cluster.conf(), tmp_path, kill)


@pytest.mark.campaign
def test_all_processes_of_one_worker_are_killed(
    world: EpochWorld, cluster: Cluster, tmp_path: Path
) -> None:
    run_through(world, cluster.conf(), tmp_path, lambda driver: cluster.kill_worker())


@pytest.mark.campaign
def test_a_worker_is_lost_in_the_middle_of_an_epoch_with_dynamic_allocation(
    world: EpochWorld, cluster: Cluster, tmp_path: Path
) -> None:
    """Its shuffle files are lost with it: the stage before is run again."""
    more = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": "5s",
    }

    def lose(driver: Driver) -> range:
        world.files.add_file(90, 20_000)
        driver.wait_until(lambda: world.files.in_doubt() > 0, "a task has prepared", every=0.002)
        cluster.kill_worker()
        cluster.add_worker()
        return range(90_000, 110_000)

    run_through(world, cluster.conf(**more), tmp_path, lose)


@pytest.mark.campaign
def test_a_task_that_stands_still_is_overtaken_by_its_speculative_copy(
    world: EpochWorld, cluster: Cluster, tmp_path: Path
) -> None:
    """It goes on once its epoch is committed, or is killed; nothing of it is ever read."""
    more = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.25",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
    }

    def stand_still(driver: Driver) -> range:
        driver.wait_until(lambda: bool(cluster.python_workers()), "tasks have run", every=0.2)
        victim = cluster.python_workers()[0]
        victim.suspend()
        world.files.add_file(90, 2000)
        try:
            driver.wait_until(
                lambda: world.files.frontier() >= FILES, "the epoch is committed", every=0.2
            )
        finally:
            with suppress(psutil.NoSuchProcess):  # Spark may have killed it as the slower one
                victim.resume()
        return range(90_000, 92_000)

    run_through(world, cluster.conf(**more), tmp_path, stand_still)
