"""Lost registers, renamed jobs, deleted checkpoints: nothing is written twice.

On a table by ``make test``, on buckets and topics in the campaign.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from abs_core.certificate import Certificate, from_text
from abs_core.contracts import Conflict
from abs_core.model import JobState
from abs_spark.datasource.kafka import KafkaDataSource
from abs_spark.datasource.s3 import S3DataSource
from tests import sample
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.places import Place
from tests.spark.world import JOB, World

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(3)]

NewWorld = Callable[[str], World]

ALL = (
    *("postgres-2pc", "postgres-wal"),
    *(f"{system}-{way}" for system in ("s3", "kafka") for way in ("2pc", "wal", "idempotent")),
)
TODAY = sample.cut(("postgres-2pc", "postgres-wal"), 1, of="dropped registers of tables")

in_every_place = pytest.mark.parametrize(
    "place",
    [pytest.param(one, marks=() if one in TODAY else pytest.mark.campaign) for one in ALL],
    indirect=True,
)
"""Every system with every protocol: one in the sample, the others in the campaign."""


def run(spark: SparkSession, place: Place, job: Job | None = None, /, **options: str) -> None:
    """Run the job until its input is read; raises what stops it."""
    job = job or place.job
    spark.dataSource.register(KafkaDataSource)
    spark.dataSource.register(S3DataSource)
    run_to_end(spark, replace(job, options={**job.options, **options}), place.url)


def refused(
    spark: SparkSession, place: Place, error: str, job: Job | None = None, /, **options: str
) -> str:
    """Run the job, which must be refused with this error; its text."""
    with pytest.raises(StreamingQueryException, match=error) as raised:
        run(spark, place, job, **options)
    return str(raised.value)


def without_name(job: Job) -> Job:
    """The job as one that its query id names."""
    options = {name: value for name, value in job.options.items() if name != "job"}
    return replace(job, options=options)


def state_of(place: Place) -> JobState:
    stored = place.register().load(JOB)
    assert stored is not None
    return stored.state


def put_back(place: Place, state: JobState) -> None:
    """Replace the job's state, as a restore does."""
    stored = place.register().load(JOB)
    assert stored is not None
    changed = place.register().compare_and_set(JOB, stored.version, state)
    assert not isinstance(changed, Conflict)


def certificate(place: Place) -> Certificate:
    path = place.checkpoint / "abs" / "certificate.json"
    return from_text(path.read_bytes(), str(path))


def consent_in(text: str) -> str:
    return text.split("adopt=")[1].split(".")[0]


@in_every_place
def test_a_dropped_register_is_not_taken_for_a_new_one(place: Place, spark: SparkSession) -> None:
    run(spark, place)
    place.holds_all()
    assert certificate(place).register == state_of(place).register
    place.drop_registers()
    place.forget_commits(1)  # what the engine would replay now
    text = refused(spark, place, "RegisterLostError")
    assert "is not there" in text
    assert f"looked for at {place.register().place(JOB)}" in text
    place.holds_all()
    assert place.register().load(JOB) is None, "a refused run has minted a register"


@in_every_place
def test_a_lost_register_is_given_up_by_consent_for_one_epoch_only(
    place: Place, spark: SparkSession
) -> None:
    run(spark, place)
    place.drop_registers()
    place.add()
    token = consent_in(refused(spark, place, "RegisterLostError"))
    refused(spark, place, "RegisterLostError", adopt="0" * len(token))
    run(spark, place, adopt=token)
    place.holds_all()
    place.drop_registers()
    place.forget_commits(1)
    refused(spark, place, "RegisterLostError", adopt=token)
    place.holds_all()


@in_every_place
def test_a_register_at_another_place_is_no_new_job(place: Place, spark: SparkSession) -> None:
    run(spark, place)
    place.forget_commits(1)
    text = refused(spark, place, "RegisterLostError", **place.elsewhere)
    assert all(option in text for option in place.elsewhere)
    place.holds_all()
    run(spark, place)
    place.holds_all()


@in_every_place
def test_a_register_restored_from_an_old_backup_is_refused(
    place: Place, spark: SparkSession
) -> None:
    """Also within its first run: there it is the epoch that the certificate names that tells."""
    run(spark, place)
    old = state_of(place)
    place.add()
    run(spark, place)
    place.forget_commits(1)
    # The other is as it was before the first decision of its last run.
    for restored in (old, replace(old, generation=2, frontier=None, recent=())):
        put_back(place, restored)
        assert "is older than it was" in refused(spark, place, "RegisterLostError")
        place.holds_all()


@in_every_place
def test_a_checkpoint_under_another_job_name_is_refused(place: Place, spark: SparkSession) -> None:
    run(spark, place)
    place.forget_commits(1)
    text = refused(spark, place, "IdentityError", job="other")
    assert "abs register rename job other" in text
    place.holds_all()
    run(spark, place)
    place.holds_all()


@in_every_place
def test_a_deleted_checkpoint_of_a_job_without_a_name_is_refused(
    place: Place, spark: SparkSession
) -> None:
    job = without_name(place.job)  # the query id names it: it goes with the checkpoint
    run(spark, place, job)
    shutil.rmtree(place.checkpoint)
    text = refused(spark, place, "Its checkpoint was deleted", job)
    place.holds_all()
    run(spark, place, job, adopt=consent_in(text))
    place.holds_all(times=2)  # what the consent said


def test_a_deleted_checkpoint_is_no_matter_where_the_table_is_empty(
    new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world("2pc")
    expected = world.add_file(0)
    job = without_name(world.job)
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
    run_to_end(spark, without_name(world.job), world.url)
    second = replace(without_name(world.job), checkpoint=str(world.folder / "another checkpoint"))
    for _ in range(2):
        run_to_end(spark, second, world.url)
    world.holds(expected + expected)


@in_every_place
def test_a_job_of_a_release_without_certificates_goes_on(place: Place, spark: SparkSession) -> None:
    run(spark, place)
    shutil.rmtree(place.checkpoint / "abs")
    put_back(place, replace(state_of(place), checkpoint=None))
    place.forget_commits(1)
    run(spark, place)
    place.holds_all()
    place.add()
    run(spark, place)
    place.holds_all()
    state = state_of(place)
    assert state.checkpoint is not None
    assert state.checkpoint.endswith(str(place.checkpoint))
    assert state.frontier is not None
    assert certificate(place) == Certificate(
        JOB,
        state.register,
        certificate(place).place,
        state.generation,
        state.frontier - 1,
        state.frontier,
    )
