"""What a losing attempt leaves when its query's last epoch is committed already does not stay open."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from abs_core.contracts import Task
from abs_core.sinkmap import STRIDE
from abs_spark.end_watcher import end_watcher
from abs_spark.foreach.function import Epoch
from abs_spark.names import RunName
from tests import sample
from tests.spark.drivers import until
from tests.spark.epoch_world import JOB, EpochWorld, once

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(300)]

LOST = 777
ENDS: dict[str, Callable[[], object]] = {
    "the session lives on": lambda: None,
    "the session ends": lambda: end_watcher.end_all(30.0),
}


@sample.cases(1)
@pytest.mark.parametrize("end", ENDS)
def test_a_loser_in_the_last_epoch_of_a_query_is_ended(
    world: EpochWorld, spark: SparkSession, end: str
) -> None:
    function = world.epoch()
    world.files.add_file(0)

    def losing(batch: DataFrame, number: int) -> None:
        function(batch, number)
        _lose(world, function, number)
        assert len(world.left_behind()) == 3

    world.run(spark, losing)
    ENDS[end]()
    until(lambda: not world.left_behind(), "nothing is in doubt", 60, every=0.2)
    world.files.add_file(1)
    world.run(spark)
    expected = once([*range(40), *range(1000, 1040)])
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}


def test_a_run_that_leaves_nothing_is_not_ended(world: EpochWorld, spark: SparkSession) -> None:
    world.files.add_file(0)
    world.run(spark)
    before = world.register().generation
    end_watcher.end_all(30.0)
    assert world.register().generation == before


def test_the_run_of_a_query_that_goes_on_is_not_ended(
    world: EpochWorld, spark: SparkSession
) -> None:
    function = world.epoch()
    world.files.add_files(range(2))

    def losing(batch: DataFrame, number: int) -> None:
        function(batch, number)
        if number == 0:
            _lose(world, function, number)
            end_watcher.end_all(30.0)  # as by spark.stop() in a batch

    world.run(spark, losing)
    assert world.ids()["payments"] == once([*range(40), *range(1000, 1040)])
    until(lambda: not world.left_behind(), "nothing is in doubt", 60, every=0.2)


class _Query:
    """As Java's, of a query that runs until it is told to end."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def awaitTermination(self) -> None:
        self.over.wait(60)

    def isActive(self) -> bool:
        return not self.over.is_set()


@dataclass
class _Run:
    """Of which only the name and its end count."""

    name: RunName
    then: Callable[[], None] = lambda: None
    ends: int = 0

    def end_leftovers(self) -> None:
        self.ends += 1
        self.then()


def test_a_run_that_begins_while_the_last_one_is_ended_is_ended_as_well() -> None:
    queries = _Query(), _Query()
    new = _Run(RunName("twice", "query", "second run"))

    def begins() -> None:
        end_watcher.watch(queries[1], new)

    old = _Run(RunName("twice", "query", "first run"), begins)
    end_watcher.watch(queries[0], old)
    for query, run in zip(queries, (old, new), strict=True):
        query.over.set()
        end_watcher.end_all(30.0)
        assert run.ends == 1


def test_two_queries_of_one_job_name_are_both_ended() -> None:
    """Their registers are in different places: neither sweeps what the other has left."""
    queries = _Query(), _Query()
    runs = [_Run(RunName("same", query, "run")) for query in ("one", "other")]
    for query, run in zip(queries, runs, strict=True):
        end_watcher.watch(query, run)
    for query in queries:
        query.over.set()
    end_watcher.end_all(30.0)
    assert [run.ends for run in runs] == [1, 1]


def _lose(world: EpochWorld, function: Epoch, epoch: int) -> None:
    """Pre-commit a row in each target, as another attempt at a task of a committed epoch."""
    run, state = function.run, world.register()
    assert run is not None
    for name, target in run.targets.opened():
        sink = target.sink(alone=run.targets.own)
        partition = run.numbers[name] * STRIDE
        task = Task(state.register, JOB, state.generation, epoch, partition, secrets.token_hex(8))
        row = {
            "id": LOST,
            "word": "",
            "at": datetime.now(UTC),
            "key": str(LOST),
            "value": str(LOST),
        }
        writer = sink.writer(task)
        rows = [{column: row[column] for column in target.schema.names}]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=target.schema))
        writer.pre_commit()
