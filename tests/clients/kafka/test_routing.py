"""What a connection remembers of coordinators and leaders may cost a try, and gives no wrong answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import kafka.errors as errors
import pytest
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from abs_clients.kafka.errors import to_abs_error
from abs_clients.kafka.routing import (
    MissingPartitionError,
    brokers_of,
    coordinators_of,
    invalidate,
    leaders_of,
)
from abs_clients.kafka.transactions import describing

NAME = "abs1:an id"


@dataclass(eq=False)
class Cluster:
    """What the connection has heard of brokers; it hears of those that are there when it asks.

    Args:
        heard: nodes whose address it has.
        there: nodes that there are.
        refreshed: how often it has asked.
    """

    heard: frozenset[int] = frozenset({1, 2})
    there: frozenset[int] = frozenset({1, 2})
    refreshed: int = 0

    def broker_metadata(self, node: int) -> SimpleNamespace | None:
        return SimpleNamespace(node_id=node) if node in self.heard else None

    def brokers(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=node) for node in sorted(self.heard)]

    async def refresh_metadata(self) -> None:
        self.heard = self.there
        self.refreshed += 1


@dataclass(eq=False)
class Manager:
    """Stands for kafka-python's: brokers that know who coordinates and leads, and count questions.

    Args:
        coordinator, leader: the node that is it now.
        knows: nodes that say that there is such an id, instead of none.
    """

    coordinator: int = 1
    leader: int = 1
    knows: frozenset[int] = frozenset({1, 2})
    asked: list[str] = field(default_factory=list)
    topic_error: int = 0
    cluster: Cluster = field(default_factory=Cluster)
    broker_version_data: Any = field(
        default_factory=lambda: SimpleNamespace(api_version=lambda request: 6)
    )

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        self.asked.append(type(request).__name__)
        if isinstance(request, FindCoordinatorRequest):
            rows = [
                SimpleNamespace(key=key, error_code=0, node_id=self.coordinator)
                for key in request.coordinator_keys
            ]
            return SimpleNamespace(coordinators=rows)
        if isinstance(request, MetadataRequest):
            partition = SimpleNamespace(partition_index=0, leader_id=self.leader)
            topic = SimpleNamespace(name="t", error_code=self.topic_error, partitions=[partition])
            return SimpleNamespace(topics=[topic])
        assert isinstance(request, DescribeTransactionsRequest)
        return SimpleNamespace(transaction_states=self.states(node_id, request.transactional_ids))

    def states(self, node: int | None, asked: Sequence[str]) -> list[SimpleNamespace]:
        code = 0 if node in self.knows else errors.TransactionalIdNotFoundError.errno
        return [state_of(each, error_code=code, producer_id=node) for each in asked]


def state_of(transactional_id: str, **more: object) -> SimpleNamespace:
    """A broker's answer for one id."""
    return SimpleNamespace(
        transactional_id=transactional_id,
        transaction_state="Ongoing",
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_start_time_ms=1,
        topics=[],
        **more,
    )


@pytest.fixture
def manager() -> Manager:
    return Manager()


def test_a_coordinator_is_asked_for_once(manager: Manager) -> None:
    for _ in range(3):
        assert _run(lambda: coordinators_of(manager, [NAME])) == {NAME: 1}
    assert manager.asked == ["FindCoordinatorRequest"]


def test_after_a_failure_it_is_asked_for_again(manager: Manager) -> None:
    _run(lambda: coordinators_of(manager, [NAME]))
    manager.coordinator = 2
    invalidate(manager)
    assert _run(lambda: coordinators_of(manager, [NAME])) == {NAME: 2}


def test_after_a_failure_the_brokers_addresses_are_asked_for_once(manager: Manager) -> None:
    """One that came back may have another; the client itself may have ceased to ask."""
    _run(lambda: coordinators_of(manager, [NAME]))
    assert manager.cluster.refreshed == 0
    invalidate(manager)
    for _ in range(2):
        _run(lambda: coordinators_of(manager, [NAME]))
    assert manager.cluster.refreshed == 1


def test_only_the_coordinator_of_now_may_say_that_there_is_no_such_id(manager: Manager) -> None:
    _run(lambda: describing([NAME])(manager))
    manager.coordinator, manager.knows = 2, frozenset({2})
    found = _run(lambda: describing([NAME])(manager))
    assert found[NAME] is not None
    assert found[NAME].producer_id == 2


def test_an_id_that_nobody_knows_is_told_as_such(manager: Manager) -> None:
    manager.knows = frozenset()
    for _ in range(2):
        assert _run(lambda: describing([NAME])(manager)) == {NAME: None}


def test_leaders_are_asked_for_every_time_unless_the_remembered_will_do(manager: Manager) -> None:
    place = "t", 0
    assert _run(lambda: leaders_of(manager, [place])) == {1: [place]}
    manager.leader = 2
    assert _run(lambda: leaders_of(manager, [place], remembered=True)) == {1: [place]}
    assert _run(lambda: leaders_of(manager, [place])) == {2: [place]}
    assert _run(lambda: leaders_of(manager, [place], remembered=True)) == {2: [place]}


@pytest.mark.parametrize("find", ["coordinator", "leader"])
def test_a_broker_that_came_since_the_connection_last_asked_is_found(
    manager: Manager, find: str
) -> None:
    setattr(manager, find, 3)
    manager.cluster.there = frozenset({1, 2, 3})
    if find == "leader":
        assert _run(lambda: leaders_of(manager, [("t", 0)])) == {3: [("t", 0)]}
    else:
        assert _run(lambda: coordinators_of(manager, [NAME])) == {NAME: 3}
    assert manager.cluster.broker_metadata(3) is not None


def test_a_broker_that_has_left_is_not_there_for_now(manager: Manager) -> None:
    manager.leader = 3
    with pytest.raises(errors.NodeNotReadyError, match="broker 3") as caught:
        _run(lambda: leaders_of(manager, [("t", 0)]))
    assert to_abs_error(caught.value, "looking").retryable


def test_all_brokers_are_those_of_now(manager: Manager) -> None:
    manager.cluster.there = frozenset({2, 4})
    assert _run(lambda: brokers_of(manager)) == [2, 4]


@pytest.mark.parametrize("place", [("t", 0), ("t", 7)])
def test_a_missing_topic_or_partition_is_told_as_such_and_may_yet_appear(
    manager: Manager, place: tuple[str, int]
) -> None:
    if place[1] == 0:
        manager.topic_error = errors.UnknownTopicOrPartitionError.errno
    with pytest.raises(MissingPartitionError) as caught:
        _run(lambda: leaders_of(manager, [place]))
    assert to_abs_error(caught.value, "looking").retryable


def _run(work: Callable[[], Any]) -> Any:
    async def main() -> Any:
        return await work()

    return asyncio.run(main())
