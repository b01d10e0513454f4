"""Kafka to Kafka through Spark: each record once, whatever is killed, read by another client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_clients.kafka.cluster import close_clusters
from abs_core.crash import CrashPoint
from abs_services import KafkaService
from abs_spark.datasource.kafka import KafkaDataSource
from tests import sample
from tests.kit.crash_points import CO_COMMIT, RARE, TWO_STEP
from tests.kit.kafka_modes import open_variant
from tests.kit.kafka_source import KafkaSourceHarness
from tests.spark.drivers import Driver, killed_at, until
from tests.spark.jobs.stream_files import Job, run_to_end, start
from tests.spark.kafka_world import KafkaWorld

pytestmark = [pytest.mark.spark, pytest.mark.services]

NewWorld = Callable[[str], KafkaWorld]

PROTOCOLS = ("2pc", "wal", "idempotent")


@pytest.fixture
def new_world(kafka: KafkaService, tmp_path: Path) -> Iterator[NewWorld]:
    """Makes the world of a protocol: two topics, and a folder."""
    kafka.start()
    with ExitStack() as stack:

        def make(protocol: str) -> KafkaWorld:
            target = stack.enter_context(open_variant(kafka.bootstrap, protocol))
            return KafkaWorld(tmp_path, kafka, KafkaSourceHarness(kafka.bootstrap), target)

        yield make
    close_clusters()


def run(spark: SparkSession, job: Job) -> None:
    spark.dataSource.register(KafkaDataSource)
    run_to_end(spark, job)


SMALL = [
    ("2pc", CrashPoint.AFTER_DECIDE),
    ("2pc-librdkafka", CrashPoint.AFTER_PRE_COMMIT),
    ("wal", CrashPoint.INSIDE_CO_COMMIT),
]
"""Decided, not committed; written, not decided; all sent, not committed. ``idempotent``: campaign."""


FULL = [
    (protocol, point)
    for protocol in (*PROTOCOLS, "2pc-librdkafka")
    for point in CrashPoint
    if point not in RARE and point not in (CO_COMMIT if "2pc" in protocol else TWO_STEP)
]


@pytest.mark.campaign
@pytest.mark.parametrize(("protocol", "point"), sample.cut(SMALL, 1, of="crashes into Kafka"))
def test_a_crash_between_two_effects_is_healed(
    protocol: str, point: CrashPoint, new_world: NewWorld, spark: SparkSession
) -> None:
    crash_and_recover(new_world(protocol), point, spark)


@pytest.mark.campaign
@pytest.mark.parametrize(("protocol", "point"), FULL)
def test_every_crash_point_of_every_protocol_through_spark(
    protocol: str, point: CrashPoint, new_world: NewWorld, spark: SparkSession
) -> None:
    crash_and_recover(new_world(protocol), point, spark)


@pytest.mark.campaign
def test_librdkafka_writes_nothing_to_the_console(new_world: NewWorld) -> None:
    """Neither while a query runs nor when its clients end (``Purging 1 unserved events``)."""
    world = new_world("2pc")
    added = [*world.source.add(60)]
    with Driver(world.job(), world.folder / "driver") as driver:
        assert driver.end() == 0, driver.log[-4000:]
    world.holds(added, "after a query")
    lines = [line for line in driver.log.splitlines() if re.search(r"%\d\||unserved", line)]
    assert lines == []


def crash_and_recover(world: KafkaWorld, point: CrashPoint, spark: SparkSession) -> None:
    """Kill the driver's whole tree as soon as one of its processes has died at the point."""
    # At random over two tasks: what is written again lies in other partitions then.
    job = world.job(scramble=True)
    added = [*world.source.add(60)]
    # The second time a process gets there, so that there is something to lose; a run starts once.
    nth = 1 if point in (CrashPoint.BEFORE_START, CrashPoint.AFTER_START) else 2
    killed_at(point, nth, job, world.folder / "first")
    added += world.source.add(10)
    run(spark, job)
    world.holds(added, f"after a crash {point}")
    world.forget_commits(1)
    run(spark, job)
    world.holds(added, f"after a crash {point}, and a replay")


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_driver_that_stood_still_while_it_was_overtaken_changes_nothing(
    protocol: str, new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world(protocol)
    added = [*world.source.add(200)]
    with Driver(world.job(continuous=True), world.folder / "first") as driver:
        driver.wait_until(lambda: len(world.epochs_done()) >= 2, "two epochs are done")
        driver.stop()
        overtaking = world.checkpoint_copy("overtaking")
        job = world.job(checkpoint=str(overtaking))
        world.forget_commits(1, overtaking)  # so that it has something to do in any case
        run(spark, job)
        world.holds(added, "after a driver was overtaken")
        added += world.source.add(10)
        driver.go_on()
        assert driver.end() == 1
        assert "abs_core.errors.FencedError" in driver.log
        run(spark, job)
    world.holds(added, "after the driver that was overtaken went on")


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_two_drivers_on_copies_of_one_checkpoint_the_newer_wins_and_the_older_stops(
    protocol: str, new_world: NewWorld, spark: SparkSession
) -> None:
    world = new_world(protocol)
    added = [*world.source.add(40)]
    with Driver(world.job(continuous=True), world.folder / "first") as driver:
        # 40 records among 40 that were aborted, and markers: 40 offsets an epoch. It is idle then.
        driver.wait_until(lambda: len(world.epochs_done()) >= 3, "all is written")
        newer = world.checkpoint_copy("newer")
        world.forget_commits(1, newer)  # so that it has something to do, and takes over
        spark.dataSource.register(KafkaDataSource)
        query = start(spark, world.job(checkpoint=str(newer), continuous=True))
        until(lambda: (now := world.state()) is not None and now.generation == 2, "it takes over")
        added += world.source.add(100)
        assert driver.end() == 1
        assert "abs_core.errors.FencedError" in driver.log
        query.processAllAvailable()
        query.stop()
    world.holds(added, "after two drivers at once")
