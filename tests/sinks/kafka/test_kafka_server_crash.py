"""The broker is killed with SIGKILL at the worst moments: nothing is lost, nothing is doubled."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from abs_core.errors import AbsError
from abs_core.model import Share
from abs_core.testing.case import Case, rows
from abs_core.testing.cuts import Cut, Halted
from abs_services import KafkaService
from abs_sinks.kafka.testing import TopicHarness, Variant, open_topic

pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(300),
    # kafka-python leaves the socket of a refused connection to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LEFT, RIGHT, NEXT = rows(0, 3), rows(10, 3), rows(20, 3)


@pytest.fixture
def server(kafka: KafkaService) -> Iterator[KafkaService]:
    if not kafka.controllable:
        pytest.skip("the broker is not ours to kill")
    kafka.start()
    yield kafka
    kafka.start()
    gc.collect()


@pytest.fixture
def case(server: KafkaService) -> Iterator[Case]:
    with open_topic(server.bootstrap, Variant("2pc", own_register=False)) as harness:
        case = Case(harness)
        yield case
        case.close()


def test_a_broker_that_dies_at_every_step_loses_and_doubles_nothing(
    server: KafkaService, case: Case
) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    _bounce(server)  # prepared, not decided
    run.commit(0, shares)
    case.finished(LEFT, RIGHT, when="after a broker died between pre-commit and commit")

    halted = case.run(run=run.who.run, cut=Cut("commit", handles=1))
    again = run.tasks(1, NEXT, rows(30, 2))
    with pytest.raises(Halted):
        halted.commit(1, again)
    _bounce(server)  # decided, one of two handles committed
    last = case.run()
    last.epoch(1, NEXT, rows(30, 2))
    expected = [LEFT, RIGHT, NEXT, rows(30, 2)]
    case.finished(*expected, when="after a broker died between decision and commit")

    writer = last.attempt(2).write(*rows(40, 2))
    server.kill()
    server.start()  # with a transaction half written
    share: Share
    try:
        share = writer.pre_commit()
    except AbsError:
        writer.writer.abort()
        share = last.task(2, 0, rows(40, 2))
    last.commit(2, [share])
    case.finished(*expected, rows(40, 2), when="after a broker died while a task wrote")
    harness = case.harness
    assert isinstance(harness, TopicHarness)
    assert harness.hidden() == 0


def _bounce(server: KafkaService) -> None:
    server.kill()
    server.start()
