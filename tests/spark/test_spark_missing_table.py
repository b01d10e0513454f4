"""A table that is dropped or renamed under its job: none takes its place, and what to do works."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from abs_cli.main import app
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.world import JOB, World

pytestmark = [pytest.mark.spark, pytest.mark.services]

NewWorld = Callable[[str], World]
MISSING = "has committed up to epoch 1 to postgres:.*was it dropped or renamed"


def job_of(world: World, **options: str) -> Job:
    return replace(world.job, options={**world.job.options, **options})


def run(spark: SparkSession, world: World, **options: str) -> None:
    run_to_end(spark, job_of(world, createtable="true", **options), world.url)


def refused(spark: SparkSession, world: World, error: str, **options: str) -> str:
    with pytest.raises(StreamingQueryException, match=error) as raised:
        run_to_end(spark, job_of(world, **options), world.url)
    return str(raised.value)


def execute(world: World, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(world.url, autocommit=True) as connection:
        done = connection.execute(statement)
        return list(done.fetchall()) if done.description else []


def tables(world: World) -> list[str]:
    found = execute(world, "select tablename from pg_tables where schemaname = 'public'")
    return sorted(str(name) for (name,) in found)


def test_a_renamed_table_is_told_and_both_ways_back_are_exact(
    new_world: NewWorld, spark: SparkSession
) -> None:
    """In one session: no process believes that the table is still there."""
    world = new_world("2pc")
    execute(world, "drop table t")
    expected = world.add_files(range(2))
    run(spark, world)  # it may be created: the job has committed nothing
    execute(world, "alter table t rename to old")
    expected += world.add_file(2)
    for options in ({}, {"createtable": "true"}, {"createtable": "true", "dbtable": "new"}):
        text = refused(spark, world, MISSING, **options)
        assert "ABS-IDENTITY" in text
        assert f"`abs job reset {JOB}`" in text
        assert tables(world) == ["old"]
    # A token is of one generation: no refused start may end the run before it, which would raise it.
    token = refused(spark, world, "ABS-IDENTITY", dbtable="old").split("adopt=")[1][:12]
    run(spark, world, dbtable="old", adopt=token)
    assert Counter(execute(world, "select id, word, at from old")) == Counter(expected)


def test_a_table_that_gets_its_old_name_back_goes_on(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("wal")
    expected = world.add_files(range(2))
    run(spark, world)
    execute(world, "alter table t rename to old")
    expected += world.add_file(2)
    refused(spark, world, MISSING, createtable="true")
    execute(world, "alter table old rename to t")
    run(spark, world)
    world.holds(expected)


def test_a_job_whose_table_was_dropped_begins_again_from_nothing(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(2))
    run(spark, world)
    execute(world, "drop table t")
    expected += world.add_file(2)
    refused(spark, world, MISSING, createtable="true")
    done = CliRunner().invoke(app, ["job", "reset", JOB, "--url", world.url, "--yes"])
    assert done.exit_code == 0, done.output
    shutil.rmtree(world.checkpoint)
    run(spark, world)
    world.holds(expected)
