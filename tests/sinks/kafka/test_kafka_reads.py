"""Each answer of a broker that a start needs fails once, also of ledger and side topics.

It is never taken for absence. ``test_kafka_positions`` fails the calls of the contract; what is asked
inside of them is failed here, at the clients' functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from abs_clients.kafka import producer_ids, topics, transactions
from abs_core.contracts import Sink, Stored
from abs_core.errors import UnavailableError
from abs_core.model import Committable, HandleName, Inspection, Outcome
from abs_services import KafkaService
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.tail import Tail, log_offsets
from abs_sinks.kafka.twophase import TwoPhaseCommitter
from abs_testing import Opener
from abs_testing.calls import ContractCalls, ReadOpener
from abs_testing.check_reads import STARTS, check_reads
from abs_testing.harness import Harness
from tests.kit.kafka import Variant, open_topic
from tests.kit.kafka_modes import open_attempts, open_log
from tests.planted import Bug, Plant, planted
from tests.sample import members

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]

READS: tuple[Callable[..., Any], ...] = (
    *(log_offsets, topics.topic_facts, topics.topics_in_time),
    *(transactions.describe, transactions.listed, transactions.describe_open),
    *(transactions.describe_and_list_late, producer_ids.describe_producers),
)
"""What asks a broker and changes nothing; beside these a register's topic is read (``Tail``)."""


class Reads(ContractCalls):
    """Counts the clients' reads; the contract's calls pass.

    Args:
        kind: the name of those that fail; None: each of them.
    """

    def __init__(self, kind: str | None = None) -> None:
        super().__init__()
        self._kind = kind

    def through(self, sink: Sink) -> Sink:
        return sink

    def reads(self, name: str) -> bool:
        return name != "certify" and self._kind in (None, name)


@contextmanager
def counted(calls: Reads) -> Iterator[None]:
    """While it lasts, all modules' reads go through these."""

    def counting(read: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **more: calls.read(read.__name__, partial(read, *given, **more))

    with pytest.MonkeyPatch.context() as patch:
        modules = [m for name, m in sys.modules.items() if name.startswith(("abs_s", "abs_cl"))]
        for read in READS:
            instead = counting(read)
            for module in modules:
                if vars(module).get(read.__name__) is read:
                    patch.setattr(module, read.__name__, instead)
        for name in ("load", "all"):
            patch.setattr(Tail, name, counting(getattr(Tail, name)))
        yield


def by_reads(opener: Opener, kind: str | None = None) -> ReadOpener:
    @contextmanager
    def opened() -> Iterator[tuple[Harness, Reads]]:
        calls = Reads(kind)
        with opener() as harness, counted(calls):
            yield harness, calls

    return opened


@pytest.fixture
def openers(kafka: KafkaService) -> dict[str, Opener]:
    kafka.start()
    return {
        "2pc": partial(open_topic, kafka.bootstrap, Variant("2pc")),
        "wal": partial(open_log, kafka.bootstrap, Variant("wal")),
        "idempotent": partial(open_attempts, kafka.bootstrap),
    }


CASES = [(start, cell) for start in STARTS for cell in ("2pc", "wal", "idempotent")]


@pytest.mark.parametrize("case", members(CASES, 1, "Kafka, answers"), ids=": ".join)
def test_no_answer_that_fails_is_taken_for_absence(
    case: tuple[str, str], openers: dict[str, Opener]
) -> None:
    start, cell = case
    print(start, cell, check_reads(by_reads(openers[cell]), start), sep=": ")


def takes_a_register_that_does_not_answer_for_none(plant: Plant) -> None:
    right = KafkaRegister.load

    def load(self: KafkaRegister, job: str) -> Stored | None:
        try:
            return right(self, job)
        except UnavailableError:
            return None

    plant(KafkaRegister, "load", load)


def takes_a_transaction_of_which_no_answer_came_for_gone(plant: Plant) -> None:
    right = TwoPhaseCommitter.inspect

    def inspect(
        self: TwoPhaseCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Inspection]:
        try:
            return right(self, committables)
        except UnavailableError:
            return {c.handle: Inspection(Outcome.UNKNOWN) for c in committables}

    plant(TwoPhaseCommitter, "inspect", inspect)


# Where it is, and which reads it gets wrong. Only they fail: each failure is a start of its own.
BUGS: dict[Bug, tuple[str, str]] = {
    takes_a_register_that_does_not_answer_for_none: ("a start that goes on", "load"),
    takes_a_transaction_of_which_no_answer_came_for_gone: (
        "a first start",
        "describe_and_list_late",
    ),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_it_finds_a_sink_that(bug: Bug, openers: dict[str, Opener]) -> None:
    start, kind = BUGS[bug]
    with planted(bug, match="fails once") as failed:
        check_reads(by_reads(openers["2pc"], kind), start)
    print(failed.value)
