"""An error of a task says that it happened on an executor, and on which host."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.jobs.stream_files import run_to_end
from tests.spark.world import ARROW, World, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.services]

NAMED = rf"RowError: .*on executor {socket.gethostname()}\]"


@pytest.fixture
def world(new_world: Callable[[str], World]) -> World:
    """Its one row holds what PostgreSQL's text cannot."""
    world = new_world("2pc")
    (number, _, at), *_ = rows_of(0, 1)
    world.put(0, pa.table([[number], ["a\0b"], [at]], schema=ARROW))
    return world


def test_an_error_of_a_streams_task_names_the_host(world: World, spark: SparkSession) -> None:
    with pytest.raises(StreamingQueryException, match=NAMED):
        run_to_end(spark, world.job, world.url)
    assert world.count() == 0


def test_an_error_of_an_epochs_task_names_the_host(world: World, spark: SparkSession) -> None:
    sinks = [{"format": "abs-postgres", "options": {"dbtable": "t"}}]
    with pytest.raises(StreamingQueryException, match=NAMED):
        run_to_end(spark, replace(world.job, sinks=sinks), world.url)
    assert world.count() == 0


def test_an_error_of_a_batchs_task_names_the_host(world: World, spark: SparkSession) -> None:
    rows = spark.read.parquet(world.job.input)
    options = {**world.job.options, "url": world.url, "epoch": "today"}
    with pytest.raises(PySparkException, match=NAMED):
        rows.write.format("abs-postgres").options(**options).mode("append").save()
    assert world.count() == 0
