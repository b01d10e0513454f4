"""Two drivers of one job on copies of its checkpoint: the newer one writes, the older one is fenced."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from tests.spark.drivers import Driver, until
from tests.spark.jobs.stream_files import Job, run_to_end, start
from tests.spark.world import World

BEFORE = 2
"""Files that the older driver has written; the newer one repeats the last, and writes the rest."""


def one_stands_still(
    spark: SparkSession, world: World, job: Job, files: int, rows: int, url: str | None = None
) -> None:
    """While another goes on; then it has work to do as soon as it goes on itself."""
    world.add_files(range(BEFORE), rows)
    with Driver(job, world.folder / "stopped", url) as driver:
        driver.wait_until(lambda: _has(world, BEFORE - 1), "it is idle")
        driver.stop()
        other = world.with_checkpoint_copy("other")
        world.add_files(range(BEFORE, files), rows)
        other.forget_commits(1)
        run_to_end(spark, replace(job, continuous=False, checkpoint=str(other.checkpoint)), url)
        driver.go_on()
        _is_fenced(driver)


def both_go_on(
    spark: SparkSession, world: World, job: Job, files: int, rows: int, url: str | None = None
) -> None:
    """The older one meets the next files, too."""
    world.add_files(range(BEFORE), rows)
    with Driver(job, world.folder / "first", url) as driver:
        driver.wait_until(lambda: _has(world, BEFORE - 1), "it is idle")
        newer = world.with_checkpoint_copy("newer")
        newer.forget_commits(1)  # so that it has something to do, and takes over
        query = start(spark, replace(job, checkpoint=str(newer.checkpoint)), url)
        until(lambda: _has(newer, BEFORE - 1), "the newer has taken over")
        world.add_files(range(BEFORE, files), rows)
        _is_fenced(driver)
        until(lambda: _has(newer, files - 1), "the newer has written the rest")
        query.stop()


def _has(world: World, epoch: int) -> bool:
    return (world.checkpoint / "commits" / str(epoch)).exists()


def _is_fenced(driver: Driver) -> None:
    assert driver.end() == 1
    assert "FencedError" in driver.log
