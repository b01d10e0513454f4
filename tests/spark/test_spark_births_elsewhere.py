"""Lost registers, renamed jobs, deleted checkpoints, on S3 and Kafka: nothing is written twice.

For the campaign; ``make test`` has the same on PostgreSQL, in ``test_spark_births``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from abs_clients.kafka.cluster import close_clusters
from abs_clients.s3.objects import Objects
from abs_core.contracts import Conflict, Inventory
from abs_core.errors import RegisterLostError
from abs_core.model import JobState
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.s3 import S3Options
from abs_sinks.s3.register import S3Register
from abs_spark.datasource.kafka import KafkaDataSource
from abs_spark.datasource.s3 import S3DataSource
from tests import sample
from tests.kit.kafka import delete_topics
from tests.kit.kafka_modes import open_variant
from tests.kit.kafka_source import KafkaSourceHarness
from tests.spark.bucket import Bucket
from tests.spark.drivers import until
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.kafka_world import KafkaWorld
from tests.spark.test_spark_births import consent_in
from tests.spark.test_spark_s3_kills import holds, rows_of
from tests.spark.world import JOB, Row, World

pytestmark = [pytest.mark.spark, pytest.mark.services]


class Place(Protocol):
    """A job that writes somewhere, its input and its checkpoint."""

    protocol: str
    elsewhere: dict[str, str]
    """Options by which the register would be looked for at another place."""

    @property
    def job(self) -> Job: ...

    @property
    def checkpoint(self) -> Path: ...

    def register(self) -> Inventory: ...

    def drop_registers(self) -> None:
        """Delete every register, and what readers know by them."""
        ...

    def add(self) -> None:
        """Put more rows where the job reads."""
        ...

    def holds_all(self, times: int = 1) -> None:
        """Assert that the target has what was added, each row so often, and nothing else."""
        ...

    def forget_commits(self, newest: int) -> None: ...


@dataclass
class OnS3:
    world: World
    bucket: Bucket
    protocol: str
    added: list[Row] = field(default_factory=list)
    files: int = 0
    forgotten: bool = False
    """Whether there are files that no register names any more."""
    elsewhere: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.elsewhere = {"statepath": f"{self.bucket.options['path']}-elsewhere"}
        self._options = S3Options.parse({**self.bucket.options, "protocol": self.protocol})

    @property
    def job(self) -> Job:
        options = {**self.bucket.options, "protocol": self.protocol, "job": JOB}
        return replace(self.world.job, format="abs-s3", options=options)

    @property
    def checkpoint(self) -> Path:
        return self.world.checkpoint

    def register(self) -> Inventory:
        return S3Register(self._options)

    def drop_registers(self) -> None:
        objects = Objects(self._options.bucket)
        objects.delete([one.key for one in objects.list(self._options.state.key("register", ""))])
        self.forgotten = self.protocol == "idempotent"  # the register names the files

    def add(self) -> None:
        self.added += self.world.add_file(self.files)
        self.files += 1

    def holds_all(self, times: int = 1) -> None:
        if self.forgotten:
            # Nobody knows which of these files are committed: a reader is refused, not misled.
            with pytest.raises(RegisterLostError):
                rows_of(self.bucket, self.protocol)
        else:
            holds(self.bucket, self.protocol, self.added * times)

    def forget_commits(self, newest: int) -> None:
        self.world.forget_commits(newest)


@dataclass
class OnKafka:
    world: KafkaWorld
    protocol: str
    added: list[object] = field(default_factory=list)
    elsewhere: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.elsewhere = {"registertopic": f"{self.world.target.topic}-elsewhere"}

    @property
    def job(self) -> Job:
        return self.world.job()

    @property
    def checkpoint(self) -> Path:
        return self.world.checkpoint

    def register(self) -> Inventory:
        return KafkaRegister(self.world.target.options)

    def drop_registers(self) -> None:
        options = self.world.target.options
        delete_topics(options.kafka, [options.registertopic])
        until(lambda: self.register().load(JOB) is None, "the topic of registers is gone")

    def add(self) -> None:
        self.added += self.world.source.add(10)

    def holds_all(self, times: int = 1) -> None:
        self.world.holds(self.added * times, "now")

    def forget_commits(self, newest: int) -> None:
        self.world.forget_commits(newest)


TODAY = sample.cut(("s3-2pc", "kafka-2pc"), 1, of="dropped registers")
ALL = tuple(f"{system}-{way}" for system in ("s3", "kafka") for way in ("2pc", "wal", "idempotent"))


def places(*every_day: str) -> pytest.MarkDecorator:
    """Every system with every protocol: these in the sample, the others in the campaign."""
    params = [
        pytest.param(one, marks=() if one in every_day else pytest.mark.campaign) for one in ALL
    ]
    return pytest.mark.parametrize("place", params, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    system, protocol = str(request.param).split("-")
    opener = {"s3": _on_s3, "kafka": _on_kafka}[system]
    with opener(request, protocol) as place:
        place.add()
        place.add()
        yield place


@contextmanager
def _on_s3(request: pytest.FixtureRequest, protocol: str) -> Iterator[Place]:
    world = World(request.getfixturevalue("tmp_path"), "", (("protocol", protocol),))
    yield OnS3(world, request.getfixturevalue("bucket"), protocol)


@contextmanager
def _on_kafka(request: pytest.FixtureRequest, protocol: str) -> Iterator[Place]:
    kafka = request.getfixturevalue("kafka")
    kafka.start()
    with ExitStack() as stack:
        target = stack.enter_context(open_variant(kafka.bootstrap, protocol))
        source = KafkaSourceHarness(kafka.bootstrap)
        folder = request.getfixturevalue("tmp_path")
        yield OnKafka(KafkaWorld(folder, kafka, source, target), protocol)
    close_clusters()


def run(spark: SparkSession, job: Job, /, **options: str) -> None:
    """Run the job until its input is read; raises what stops it."""
    spark.dataSource.register(KafkaDataSource)
    spark.dataSource.register(S3DataSource)
    run_to_end(spark, replace(job, options={**job.options, **options}))


def refused(spark: SparkSession, job: Job, error: str, /, **options: str) -> str:
    """Run the job, which must be refused with this error; its text."""
    with pytest.raises(StreamingQueryException, match=error) as raised:
        run(spark, job, **options)
    return str(raised.value)


def without_name(job: Job) -> Job:
    """The job as one that its query id names."""
    return replace(job, options={n: v for n, v in job.options.items() if n != "job"})


def put_back(place: Place, change: Callable[[JobState], JobState]) -> None:
    """Replace the job's state, as a restore does."""
    stored = place.register().load(JOB)
    assert stored is not None
    changed = place.register().compare_and_set(JOB, stored.version, change(stored.state))
    assert not isinstance(changed, Conflict)


@pytest.mark.campaign
@places(*TODAY)
def test_a_dropped_register_is_not_taken_for_a_new_one(place: Place, spark: SparkSession) -> None:
    run(spark, place.job)
    place.holds_all()
    place.drop_registers()
    place.forget_commits(1)  # what the engine would replay now
    text = refused(spark, place.job, "RegisterLostError")
    assert "is not there" in text
    assert place.register().load(JOB) is None, "a refused run has minted a register"
    refused(spark, place.job, "RegisterLostError", adopt="0" * len(consent_in(text)))
    place.holds_all()


@places()
def test_consent_to_go_on_without_a_register_is_for_one_epoch_only(
    place: Place, spark: SparkSession
) -> None:
    run(spark, place.job)
    place.drop_registers()
    place.add()
    token = consent_in(refused(spark, place.job, "RegisterLostError"))
    run(spark, place.job, adopt=token)
    place.holds_all()
    place.drop_registers()
    place.forget_commits(1)
    refused(spark, place.job, "RegisterLostError", adopt=token)


@places()
def test_a_register_at_another_place_is_no_new_job(place: Place, spark: SparkSession) -> None:
    run(spark, place.job)
    place.forget_commits(1)
    refused(spark, place.job, "RegisterLostError", **place.elsewhere)
    place.holds_all()
    run(spark, place.job)
    place.holds_all()


@places()
def test_a_register_restored_from_an_old_backup_is_refused(
    place: Place, spark: SparkSession
) -> None:
    run(spark, place.job)
    stored = place.register().load(JOB)
    assert stored is not None
    place.add()
    run(spark, place.job)
    put_back(place, lambda _: stored.state)
    place.forget_commits(1)
    assert "is older than it was" in refused(spark, place.job, "RegisterLostError")
    place.holds_all()


@places()
def test_a_checkpoint_under_another_job_name_is_refused(place: Place, spark: SparkSession) -> None:
    run(spark, place.job)
    place.forget_commits(1)
    text = refused(spark, place.job, "IdentityError", job="other")
    assert "abs register rename job other" in text
    run(spark, place.job)
    place.holds_all()


@places()
def test_a_deleted_checkpoint_of_a_job_without_a_name_is_refused(
    place: Place, spark: SparkSession
) -> None:
    job = without_name(place.job)
    run(spark, job)
    shutil.rmtree(place.checkpoint)
    refused(spark, job, "Its checkpoint was deleted")
    place.holds_all()


@places()
def test_a_job_of_a_release_without_certificates_goes_on(place: Place, spark: SparkSession) -> None:
    run(spark, place.job)
    shutil.rmtree(place.checkpoint / "abs")
    put_back(place, lambda state: replace(state, checkpoint=None))
    place.forget_commits(1)
    run(spark, place.job)
    place.holds_all()
    place.add()
    run(spark, place.job)
    place.holds_all()
    assert (place.checkpoint / "abs" / "certificate.json").exists()
    stored = place.register().load(JOB)
    assert stored is not None
    assert stored.state.checkpoint is not None
