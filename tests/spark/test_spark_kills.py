"""Drivers that are killed, stopped and overtaken: the table holds every row exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.spark.drivers import Driver
from tests.spark.jobs.stream_files import start
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.services]


def test_a_job_killed_with_all_its_processes_goes_on_where_it_was(
    new_world: Callable[[str], World], spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(4))
    with Driver(replace(world.job, continuous=True), world.folder / "first", world.url) as driver:
        driver.wait_until(lambda: world.frontier() >= 1, "epoch 1 is finished")
        driver.kill()
    assert 0 < world.count() <= len(expected)
    expected += world.add_files(range(4, 6))
    start(spark, world.job, world.url).awaitTermination()
    world.holds(expected)
    assert world.in_doubt() == 0
