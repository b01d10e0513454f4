"""``abs_spark.once`` over SQLite: what a killed, replayed or misled job leaves in its target."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_core.crash import CrashPoint
from abs_core.errors import OptionError, ReplayMismatchError
from abs_core.registers import FileRegister
from abs_services import KafkaService, S3Service
from tests.spark.jobs.own_write import recipe, start
from tests.spark.own_world import OwnWorld

pytestmark = pytest.mark.spark


@pytest.fixture
def world(tmp_path: Path) -> OwnWorld:
    return OwnWorld.of(tmp_path, "sqlite_upsert", str(tmp_path / "target.db"))


def test_killed_between_write_and_note_it_is_not_written_again(
    spark: SparkSession, world: OwnWorld
) -> None:
    world.add_files(3)
    assert world.killed(CrashPoint.AFTER_COMMIT, 2)
    state = FileRegister(world.job.register).load("own")
    assert state is not None
    assert [decision.epoch for decision in state.state.open] == [1]
    world.run(spark)
    assert world.balances == world.expected


@pytest.mark.campaign
@pytest.mark.services
@pytest.mark.parametrize("system", ["kafka", "s3"])
def test_the_register_may_be_a_topic_or_lie_in_a_bucket(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    tmp_path: Path,
    system: str,
) -> None:
    if system == "kafka":
        kafka: KafkaService = request.getfixturevalue("kafka")
        register = f"kafka://{kafka.bootstrap}/once-{uuid4().hex}"
    else:
        store: S3Service = request.getfixturevalue("store")
        register = f"s3://{store.bucket}/{request.getfixturevalue('prefix')}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.setenv("AWS_DEFAULT_REGION", store.region)
    place = str(tmp_path / "target.db")
    world = OwnWorld.of(tmp_path, "sqlite_upsert", place, register=register)
    world.add_files(2)
    assert world.killed(CrashPoint.AFTER_COMMIT, 1)
    world.run(spark)
    assert world.balances == world.expected
    world.forget_commits(1)
    world.add_files(1)
    world.run(spark)
    assert world.balances == world.expected


def test_replayed_restored_and_deleted_checkpoints(spark: SparkSession, world: OwnWorld) -> None:
    world.add_files(2)
    world.run(spark)
    kept = world.copied("kept")
    world.forget_commits(1)
    world.run(spark)  # a replay of epoch 1
    assert world.balances == world.expected
    world.add_files(1)
    world.run(spark)
    done = world.balances
    shutil.rmtree(world.checkpoint)
    world.add_files(1)
    with pytest.raises(StreamingQueryException, match="Was the checkpoint of job own deleted"):
        world.run(spark)
    shutil.rmtree(world.checkpoint)
    shutil.move(kept, world.checkpoint)  # of two epochs ago: epoch 2 would have two files
    with pytest.raises(StreamingQueryException, match="ABS-REPLAY-MISMATCH"):
        world.run(spark)
    assert world.balances == done


def test_a_query_with_state_goes_on_after_an_epoch_that_is_skipped(
    spark: SparkSession, world: OwnWorld
) -> None:
    world.add_files(2)
    world.run(spark, stateful=True)
    world.forget_commits(1)
    world.add_files(1)
    world.run(spark, stateful=True)
    assert world.balances == world.expected


def test_a_second_call_of_the_job_in_a_batch_is_refused_until_the_rest_is_consented_to(
    spark: SparkSession, world: OwnWorld
) -> None:
    write, applied = recipe("sqlite_upsert", world.job.place)
    at = world.job.checkpoint

    def run(*parts: tuple[str, str], **more: str) -> None:
        """Each part of a batch by a call of its own: a job, and a condition."""

        def function(df: DataFrame, batch: int) -> None:
            for job, condition in parts:
                abs_spark.once(
                    write,
                    applied=applied,
                    job=job,
                    register=world.job.register,
                    checkpointLocation=at,
                    **more,  # type: ignore[arg-type]
                )(df.where(condition), batch)

        rows = spark.readStream.schema("account bigint, amount bigint").json(world.job.input)
        writer = rows.writeStream.foreachBatch(function).option("checkpointLocation", at)
        writer.trigger(availableNow=True).start().awaitTermination()

    few, many = "account < 3", "account >= 3"
    world.add_files(1)
    with pytest.raises(StreamingQueryException, match="already written batch 0 for this job"):
        run(("own", few), ("own", many))
    first = {account: sum_ for account, sum_ in world.expected.items() if account < 3}
    assert world.balances == first
    for parts in ([("own", few), ("own", many)], [("own", "true")]):
        with pytest.raises(StreamingQueryException, match="A second call of this job") as refused:
            run(*parts)
    token = re.search(r"adopt=(\w+)", str(refused.value))
    assert token is not None
    # Each part by a job of its own: the second job writes what is missing, the first one is not asked.
    run(("own", few), ("rest", many), adopt=token[1])
    assert world.balances == world.expected
    world.add_files(1)
    run(("own", few), ("rest", many))
    assert world.balances == world.expected


def test_it_is_explained(
    spark: SparkSession, world: OwnWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    world.add_files(1)
    query = start(spark, world.job)
    query.awaitTermination()
    abs_spark.explain(query)
    assert "every row exactly once (protocol once, write of your own)" in capsys.readouterr().out


def test_a_batch_is_written_once_for_its_name(spark: SparkSession, world: OwnWorld) -> None:
    write, applied = recipe("sqlite_upsert", world.job.place)

    def day(name: str) -> Callable[..., None]:
        more = {"applied": applied, "register": world.job.register}
        return abs_spark.once(write, job="days", epoch=name, **more)  # type: ignore[arg-type]

    rows = spark.createDataFrame([(1, 10), (2, 20)], "account bigint, amount bigint")
    day("monday")(rows)
    day("monday")(rows.repartition(2))
    assert world.balances == {1: 10, 2: 20}
    with pytest.raises(ReplayMismatchError, match="written before, with other rows"):
        day("monday")(rows.limit(1))
    day("tuesday")(rows.limit(1))
    assert world.balances == {1: 20, 2: 20}


class TestArguments:
    def test_the_weaker_promises_are_chosen_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="promise=None does not fit no applied"):
            abs_spark.once(print, job="j", register=str(tmp_path), epoch="e")
        with pytest.raises(OptionError, match="promise='at least once' does not fit applied"):
            abs_spark.once(
                print,
                applied=lambda application: None,
                promise="at least once",
                job="j",
                register=str(tmp_path),
                epoch="e",
            )
        made = abs_spark.once(
            print, promise="at most once", job="j", register=str(tmp_path), epoch="e"
        )
        assert "every row at most once" in repr(made)

    def test_it_is_for_a_stream_or_for_a_batch(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="either checkpointLocation or epoch"):
            abs_spark.once(print, promise="at most once", job="j", register=str(tmp_path))

    @pytest.mark.parametrize("register", ["relative/folder", "./relative", "ftp://host/x"])
    def test_a_register_must_be_found_again(self, register: str) -> None:
        with pytest.raises(OptionError):
            abs_spark.once(print, promise="at most once", job="j", register=register, epoch="e")
