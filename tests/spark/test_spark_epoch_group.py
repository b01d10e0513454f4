"""Two tables of one database in one query: a row and those that refer to it come together."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import abs_spark
from abs_core.contracts import Task
from abs_core.crash import CrashPoint
from abs_spark.foreach.explain import explanation
from abs_spark.foreach.function import Epoch
from abs_spark.sink_spec import group_of
from tests import sample
from tests.kit.crash_points import CO_COMMIT, RARE
from tests.spark.drivers import killed_at
from tests.spark.epoch_world import JOB, SCHEMA
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(2)]

FILES = 3
ROWS = 40
TOGETHER = {
    "2pc": "one transaction holds a task's rows of payments, notes",
    "wal": "one transaction holds an epoch's rows of payments, notes, and the register's change",
}
POINTS = {
    "2pc": sorted(set(CrashPoint) - CO_COMMIT - RARE),
    "wal": sorted(CO_COMMIT | {CrashPoint.AFTER_FIRST_BATCH, CrashPoint.AFTER_PRE_COMMIT}),
}

PROTOCOLS = pytest.mark.parametrize("protocol", sorted(TOGETHER))


@pytest.fixture
def world(new_world: Callable[[str], World]) -> World:
    """``notes`` refers to ``t``."""
    made = new_world("2pc")
    made.alter("add primary key (id)")
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute("create table notes (id bigint primary key references t, word text)")
    return made


def epoch(world: World, protocol: str) -> Epoch:
    """Every other row has a note."""
    given = {"url": world.url, "protocol": protocol}
    payments = abs_spark.sink("abs-postgres", {**given, "dbtable": "t"}, name="payments")
    notes = abs_spark.sink(
        "abs-postgres",
        {**given, "dbtable": "notes"},
        name="notes",
        select=["id", "word"],
        where="id % 2 = 0",
    )
    return abs_spark.epoch([payments, notes], job=JOB, checkpointLocation=str(world.checkpoint))


def run(spark: SparkSession, world: World, function: Any) -> None:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    rows = reader.parquet(world.job.input).writeStream.foreachBatch(function)
    rows = rows.option("checkpointLocation", str(world.checkpoint))
    rows.trigger(availableNow=True).start().awaitTermination()


def job_of(world: World, protocol: str) -> Job:
    options = {"protocol": protocol}
    sinks: list[dict[str, Any]] = [
        {"format": "abs-postgres", "name": "payments", "options": {**options, "dbtable": "t"}},
        {
            "format": "abs-postgres",
            "name": "notes",
            "options": {**options, "dbtable": "notes"},
            "select": ["id", "word"],
            "where": "id % 2 = 0",
        },
    ]
    return replace(world.epoch_job(sinks), scramble=True)


def check(world: World, files: int) -> None:
    ids = [number * 1000 + row for number in range(files) for row in range(ROWS)]
    with psycopg.connect(world.url, autocommit=True) as connection:
        found = [row[0] for row in connection.execute("select id from t order by id")]
        notes = [row[0] for row in connection.execute("select id from notes order by id")]
    assert found == ids
    assert notes == [i for i in ids if i % 2 == 0]
    assert world.left_behind() == []


@sample.cases(1)
@PROTOCOLS
def test_rows_and_those_that_refer_to_them_are_written_once_over_a_replay(
    spark: SparkSession, world: World, protocol: str
) -> None:
    world.add_files(range(2), ROWS)
    function = epoch(world, protocol)
    run(spark, world, function)
    check(world, 2)
    assert TOGETHER[protocol] in explanation(function)
    world.forget_commits(1)
    world.add_files(range(2, FILES), ROWS)
    run(spark, world, epoch(world, protocol))
    check(world, FILES)


def test_explain_shows_a_groups_handle_under_each_of_its_sinks(
    spark: SparkSession, world: World
) -> None:
    world.add_files(range(1), ROWS)
    function = epoch(world, "2pc")
    run(spark, world, function)
    begun = function.run
    assert begun is not None
    state, _ = begun.begin(1)
    opened = {begun.numbers[name]: target for name, target in begun.targets.opened()}
    group = group_of(opened)
    writer = group.writer(Task(state.register, JOB, state.generation, 1, 0, "ab"))
    writer.write(0, pa.RecordBatch.from_pylist([{"id": 1000}], schema=opened[0].schema))
    made = writer.pre_commit()
    assert made is not None
    try:
        told = [line for line in explanation(function).splitlines() if "in doubt" in line]
        fate = "undecided: its epoch is under way, or its run died and the next start ends it"
        assert told == [f"    in doubt: {made.handle} ({fate})"] * 2
    finally:
        group.committer(co_commit=False).abort([made.handle])


@sample.cases(1)
@PROTOCOLS
def test_a_row_that_one_table_refuses_keeps_the_epoch_from_the_other(
    spark: SparkSession, world: World, protocol: str
) -> None:
    world.add_files(range(1), ROWS)
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("alter table notes add constraint late check (id < 30)")
    with pytest.raises(StreamingQueryException, match='violates check constraint "late"'):
        run(spark, world, epoch(world, protocol))
    check(world, 0)
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("alter table notes drop constraint late")
    run(spark, world, epoch(world, protocol))
    check(world, 1)


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", sample.cut(sorted(TOGETHER), 1, of="a killed group"))
def test_a_driver_killed_at_random_leaves_both_tables_with_the_same_epochs(
    spark: SparkSession, world: World, protocol: str
) -> None:
    point = random.Random(sample.seed()).choice(POINTS[protocol])
    print(f"killed at {point}, seed {sample.seed()}")
    kill_and_go_on(spark, world, protocol, point)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("protocol", "point"), [(name, point) for name in sorted(POINTS) for point in POINTS[name]]
)
def test_a_driver_killed_anywhere_leaves_both_tables_with_the_same_epochs(
    spark: SparkSession, world: World, protocol: str, point: CrashPoint
) -> None:
    kill_and_go_on(spark, world, protocol, point)


def kill_and_go_on(spark: SparkSession, world: World, protocol: str, point: CrashPoint) -> None:
    world.add_files(range(FILES), ROWS)
    job = job_of(world, protocol)
    killed_at(point, 1, job, world.folder / "killed", world.url)
    with psycopg.connect(world.url, autocommit=True) as connection:
        loose = "select count(*) from t where id % 2 = 0 and id not in (select id from notes)"
        assert connection.execute(loose).fetchone() == (0,), "a row came without its note"
    run_to_end(spark, job, world.url)
    check(world, FILES)
