"""The broker is killed with SIGKILL at the worst moments: nothing is lost, nothing is doubled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from threading import Timer

import pytest

from abs_core.errors import AbsError
from abs_core.model import Share
from abs_core.patience import Patience
from abs_services import KafkaService
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from abs_testing.harness import Row
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.kit.kafka_modes import open_variant
from tests.sinks.kafka.rules import through

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

LEFT, RIGHT, NEXT = rows(0, 3), rows(10, 3), rows(20, 3)
KILLS = 5
PATIENT = Patience(seconds=60.0)
"""A broker that comes back loads its transactions: on a busy machine that takes more than 5 s."""


@pytest.fixture
def server(kafka: KafkaService) -> Iterator[KafkaService]:
    if not kafka.controllable:
        pytest.skip("the broker is not ours to kill")
    kafka.start()
    yield kafka
    kafka.start()


@pytest.fixture
def producer() -> str:
    return "librdkafka"


@pytest.fixture
def harness(server: KafkaService, producer: str) -> Iterator[TopicHarness]:
    variant = Variant("2pc", own_register=False, producer=producer)
    with open_topic(server.bootstrap, variant) as harness:
        yield harness


def test_a_broker_that_dies_among_the_commits_of_an_epoch_loses_and_doubles_nothing(
    server: KafkaService, harness: TopicHarness, case: Case
) -> None:
    halted = case.run(cut=Cut("commit", handles=1))
    shares = halted.tasks(0, LEFT, RIGHT)
    with pytest.raises(Halted):
        halted.commit(0, shares)
    _bounce(server)  # decided, one of two handles committed
    case.run(patience=PATIENT).epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a broker died between decision and commit")
    assert harness.hidden() == 0


@pytest.mark.parametrize(
    "producer", [pytest.param("librdkafka", marks=pytest.mark.campaign), "columnar"]
)
def test_a_broker_that_dies_before_the_commit_or_while_a_task_writes_loses_and_doubles_nothing(
    server: KafkaService, harness: TopicHarness, case: Case
) -> None:
    run = case.run(patience=PATIENT)
    shares = run.tasks(0, LEFT, RIGHT)
    _bounce(server)  # prepared, not decided
    run.commit(0, shares)
    case.finished(LEFT, RIGHT, when="after a broker died between pre-commit and commit")
    writer = run.attempt(1).write(*NEXT)
    _bounce(server)  # with a transaction half written
    share: Share
    try:
        share = writer.pre_commit()
    except AbsError:
        writer.writer.abort()
        share = run.task(1, 0, NEXT)
    run.commit(1, [share])
    case.finished(LEFT, RIGHT, NEXT, when="after a broker died while a task wrote")
    assert harness.hidden() == 0


@pytest.mark.campaign
@pytest.mark.parametrize("mode", ["2pc", "2pc-librdkafka", "wal", "idempotent"])
def test_a_broker_that_is_killed_five_times_in_a_run_loses_and_doubles_nothing(
    server: KafkaService, mode: str
) -> None:
    """At any moment of an epoch; some tasks have no row, some epochs none at all."""
    chance = random.Random(5)
    with open_variant(server.bootstrap, mode) as harness, Case(harness) as case:
        run = _started(case)
        written: list[list[Row]] = []
        for epoch in range(2 * KILLS + 1):
            parts = _parts(epoch)
            killer = Timer(chance.uniform(0, 0.5), _bounce, [server])
            if epoch % 2:
                killer.start()
            run = through(lambda: _started(case), run, epoch, parts)
            if epoch % 2:
                killer.join()
            written += parts
        case.finished(*written, when=f"after {KILLS} kills of the broker")
        assert harness.hidden() == 0


def _parts(epoch: int) -> list[list[Row]]:
    """Of a task with rows, one without, and one more with rows; every fourth epoch is empty."""
    if epoch % 4 == 3:
        return [[], []]
    return [rows(100 * epoch, 20), [], rows(100 * epoch + 50, 20)]


def _started(case: Case) -> Run:
    for _retry in range(10):
        try:
            return case.run(patience=PATIENT)
        except AbsError as error:
            print(f"at a start: {error}")
    raise AssertionError("ten tries did not start the job")


def _bounce(server: KafkaService) -> None:
    server.kill()
    server.start()
