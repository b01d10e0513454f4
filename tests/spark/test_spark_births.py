"""Lost registers, renamed jobs, deleted checkpoints: nothing is written twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from abs_core.certificate import Certificate, from_text
from tests import sample
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.world import JOB, World

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(3)]

NewWorld = Callable[[str], World]


def run(spark: SparkSession, world: World, **options: str) -> None:
    """Run the job until its files are read; raises what stops it."""
    job = replace(world.job, options={**world.job.options, **options})
    run_to_end(spark, job, world.url)


def refused(spark: SparkSession, world: World, error: str, **options: str) -> str:
    """Run the job, which must be refused with this error; its text."""
    with pytest.raises(StreamingQueryException, match=error) as raised:
        run(spark, world, **options)
    return str(raised.value)


def without_name(world: World) -> Job:
    """The job as one that its query id names."""
    options = {name: value for name, value in world.job.options.items() if name != "job"}
    return replace(world.job, options=options)


def drop_registers(world: World) -> None:
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("drop schema abs cascade")


def certificate(world: World) -> Certificate:
    path = world.checkpoint / "abs" / "certificate.json"
    return from_text(path.read_bytes(), str(path))


def consent_in(text: str) -> str:
    return text.split("adopt=")[1].split(".")[0]


@pytest.mark.parametrize("way", sample.members(["2pc", "wal"], 1, "dropped registers of tables"))
def test_a_dropped_register_is_not_taken_for_a_new_one(
    way: str, new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world(way)
    expected = world.add_files(range(2))
    run(spark, world)
    world.holds(expected)
    state = world.state()
    assert state is not None
    assert certificate(world).register == state.register
    drop_registers(world)
    world.forget_commits(1)  # what the engine would replay now
    text = refused(spark, world, "RegisterLostError")
    assert "is not there" in text
    assert "looked for at abs.register row 'job'" in text.replace('"', "")
    world.holds(expected)
    assert world.state() is None, "a refused run has minted a register"


def test_a_lost_register_is_given_up_by_consent_for_one_epoch_only(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(2))
    run(spark, world)
    drop_registers(world)
    expected += world.add_file(2)
    token = consent_in(refused(spark, world, "RegisterLostError"))
    refused(spark, world, "RegisterLostError", adopt="0" * len(token))
    run(spark, world, adopt=token)
    world.holds(expected)
    drop_registers(world)
    world.forget_commits(1)
    refused(spark, world, "RegisterLostError", adopt=token)
    world.holds(expected)


def test_another_state_schema_is_no_new_job(new_world: NewWorld, spark: SparkSession) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(2))
    run(spark, world)
    world.forget_commits(1)
    text = refused(spark, world, "RegisterLostError", stateschema="elsewhere")
    assert "stateschema" in text
    world.holds(expected)
    run(spark, world)
    world.holds(expected)


def test_a_register_restored_from_an_old_backup_is_refused(
    new_world: NewWorld, spark: SparkSession
) -> None:
    """Also within its first run: there it is the epoch that the certificate names that tells."""
    world = new_world("2pc")
    register = sql.SQL("abs.register")
    with psycopg.connect(world.url, autocommit=True) as connection:
        expected = world.add_file(0, rows=0)
        run(spark, world)
        connection.execute(sql.SQL("create table old as table {}").format(register))
        expected += world.add_files(range(1, 3))
        run(spark, world)
        for restored in ("generation 1", "nothing"):
            connection.execute(sql.SQL("truncate {}").format(register))
            connection.execute(sql.SQL("insert into {} table old").format(register))
            if restored == "nothing":  # as it was before the first decision of its last run
                connection.execute(
                    sql.SQL(
                        'update {} set state = state || \'{{"generation": 2, "frontier": null, '
                        '"recent": []}}\'::jsonb'
                    ).format(register)
                )
            world.forget_commits(1)
            assert "is older than it was" in refused(spark, world, "RegisterLostError")
            world.holds(expected)


def test_a_checkpoint_under_another_job_name_is_refused(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_files(range(2))
    run(spark, world)
    world.forget_commits(1)
    text = refused(spark, world, "IdentityError", job="other")
    assert "abs register rename job other" in text
    world.holds(expected)
    run(spark, world)
    world.holds(expected)


def test_a_deleted_checkpoint_of_a_job_without_a_name_is_refused(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    job = without_name(world)  # the query id names it: it goes with the checkpoint
    run_to_end(spark, job, world.url)
    shutil.rmtree(world.checkpoint)
    with pytest.raises(StreamingQueryException, match="Its checkpoint was deleted") as raised:
        run_to_end(spark, job, world.url)
    world.holds(expected)
    token = consent_in(str(raised.value))
    consented = replace(job, options={**job.options, "adopt": token})
    run_to_end(spark, consented, world.url)
    world.holds(expected + expected)  # what the consent said


def test_a_deleted_checkpoint_is_no_matter_where_the_table_is_empty(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    job = without_name(world)
    run_to_end(spark, job, world.url)
    shutil.rmtree(world.checkpoint)
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("truncate t")
    run_to_end(spark, job, world.url)
    world.holds(expected)


def test_two_queries_without_names_write_into_one_table(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    run_to_end(spark, without_name(world), world.url)
    second = replace(without_name(world), checkpoint=str(world.folder / "another checkpoint"))
    for _ in range(2):
        run_to_end(spark, second, world.url)
    world.holds(expected + expected)


@sample.cases(1)
@pytest.mark.parametrize("way", ["2pc", "wal"])
def test_a_job_of_a_release_without_certificates_goes_on(
    way: str, new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world(way)
    expected = world.add_files(range(2))
    run(spark, world)
    shutil.rmtree(world.checkpoint / "abs")
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("update abs.register set state = state - 'checkpoint'")
    world.forget_commits(1)
    run(spark, world)
    world.holds(expected)
    expected += world.add_file(2)
    run(spark, world)
    world.holds(expected)
    state = world.state()
    assert state is not None
    assert state.checkpoint is not None
    assert state.checkpoint.endswith(str(Path(world.job.checkpoint)))
    assert certificate(world) == Certificate(
        JOB, state.register, certificate(world).place, state.generation, 1, 2
    )
