"""A ledger's topic that is gone, or gone and made again, is no proof that nothing was sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.topics import TopicFacts
from abs_core.model import Committable, HandleName
from abs_sinks.kafka import ledger
from abs_sinks.kafka.ledger import LedgerPlace, without_proof
from abs_sinks.kafka.options import KafkaOptions
from tests.planted import planted
from tests.sinks.kafka.standins import Broker, id_of

OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "wal", "wal": "file:///x"}
)
TOPIC = OPTIONS.registertopic
HERE = Committable(HandleName("0123456789abcdef", "job", 1, 0, 0, "abc"), 1, "d")
CASES = {
    "the same": (Broker([TOPIC], ids={TOPIC: 1}), id_of(1), False),
    "gone": (Broker(), id_of(1), True),
    "gone and made again": (Broker([TOPIC], ids={TOPIC: 2}), id_of(1), True),
    "brokers without ids": (Broker([TOPIC]), id_of(1), False),
    "a committable without an id": (Broker([TOPIC], ids={TOPIC: 2}), None, False),
}


def unproven(standins: list[Broker], now: Broker, then: str | None) -> bool:
    """Whether the outcome of a segment of the topic ``then`` cannot be known ``now``."""
    close_clusters()
    standins[:] = [now]
    place = LedgerPlace(TOPIC, then)
    # Beside one that has an id: the cluster is asked.
    beside = LedgerPlace(TOPIC, id_of(1)).noted(HERE)
    one = place.noted(Committable(replace(HERE.handle, partition=1), 1, "e"))
    return one in without_proof(OPTIONS, [beside, one] if then is None else [one])


@pytest.mark.parametrize("case", CASES)
def test_a_ledger_proves_as_long_as_its_topic_is_the_one_that_was_written(
    case: str, standins: list[Broker]
) -> None:
    now, then, lost = CASES[case]
    assert unproven(standins, now, then) is lost


def _only_gone(place: LedgerPlace | None, found: TopicFacts | None) -> bool:
    return place is not None and place.id is not None and found is None


def _only_another(place: LedgerPlace | None, found: TopicFacts | None) -> bool:
    return found is not None and place is not None and found.id not in (None, place.id)


@pytest.mark.parametrize("guard", [_only_gone, _only_another, lambda *_: False])
def test_a_guard_that_sees_one_kind_of_loss_only_is_found(
    guard: Callable[[LedgerPlace | None, TopicFacts | None], bool], standins: list[Broker]
) -> None:
    with planted((ledger, "_is_another", guard)):
        for now, then, lost in CASES.values():
            assert unproven(standins, now, then) is lost
