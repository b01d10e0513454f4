"""Queries Kafka's transaction coordinators and ends transactions (KIP-98, KIP-664, KIP-890).

Any process may describe and end any transaction whose producer id and epoch it knows: so a driver
commits what a task in another process has written. The requests are those of kafka-python's
protocol layer: librdkafka has none for another producer's transaction.

All functions raise ``TargetError`` if a coordinator does not answer, or refuses for reasons other than
the transaction; the outcome is then unknown, and the call can be repeated.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import kafka.errors as errors
from kafka.protocol.admin.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.producer.transaction import EndTxnRequest

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.errors import to_abs_error
from abs_clients.kafka.private import Work
from abs_clients.kafka.producer_ids import ProducerState, active_producers, produced
from abs_clients.kafka.routing import brokers_of, coordinators_of, raise_for, routing_of
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.wire import IN_FLIGHT, gather

Partition = tuple[str, int]

log = logging.getLogger(__name__)

PLAIN_END_TXN = 4
"""The newest EndTxn that leaves the producer's epoch as it is; version 5 raises it (KIP-890)."""

NEVER_MS = (1 << 31) - 1
"""What a coordinator tells as the timeout of a transaction that has none (KIP-939)."""


class State(StrEnum):
    """State of a transactional id, as its coordinator names it (``TransactionState``)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    UNKNOWN = "Unknown"


OPEN = (State.ONGOING, State.PREPARE_ABORT, State.PREPARE_COMMIT, State.PREPARE_EPOCH_FENCE)
"""States of a transaction that readers with read_committed wait for."""


class Reply(StrEnum):
    """A coordinator's answer to EndTxn.

    DONE: the requested outcome is durable, now or since before. BUSY: the transaction is being
    ended. REFUSED: this producer id and epoch have no such transaction open; describe it.
    """

    DONE = "done"
    BUSY = "busy"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Description:
    """A transactional id at its coordinator.

    Args:
        timeout_ms: ``NEVER_MS``: none.
        start_ms: begin of its transaction by the coordinator's clock; -1 if none is open.
        partitions: written by the open transaction.
    """

    state: State
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionView:
    """One transaction at its coordinator and in its partitions.

    Args:
        now: at its coordinator; None if it does not know the id.
        found: by partition; None if the principal may not ask.
        end_txn: the version of EndTxn that ends it.
    """

    now: Description | None
    found: Mapping[Partition, ProducerState | None] | None
    end_txn: int


@dataclass(frozen=True, slots=True)
class EndTxn:
    """A transaction to end: exactly this producer id and epoch, by this version of EndTxn."""

    transactional_id: str
    producer_id: int
    epoch: int
    version: int = PLAIN_END_TXN


def describe(settings: Settings, ids: Sequence[str]) -> dict[str, Description | None]:
    """The description of each id by its coordinator; None for an unknown id."""
    return cluster(settings).run("describing transactions", describing(ids)) if ids else {}


def listed(
    settings: Settings,
    states: Iterable[State] = (),
    *,
    pattern: str | None = None,
    producer_ids: Sequence[int] = (),
) -> dict[str, State]:
    """Transactional ids and their states, from all coordinators.

    Args:
        states: only ids in these; all if empty.
        pattern: regular expression for whole ids; ignored by brokers before 4.1, so
            match exactly afterwards.
        producer_ids: only these; all if empty.
    """
    work = _listing(states, pattern, producer_ids)
    return cluster(settings).run("listing transactions", work)


def open_for(settings: Settings, longer_than_ms: int) -> dict[str, Description]:
    """The transactions that are open for longer, by id; needs brokers of 3.8 or newer."""
    work = _listing((State.ONGOING,), None, (), longer_than_ms)
    ids = list(cluster(settings).run("listing open transactions", work))
    return {
        text: description
        for text, description in describe(settings, ids).items()
        if description is not None
    }


def _listing(
    states: Iterable[State],
    pattern: str | None,
    producer_ids: Sequence[int],
    longer_than_ms: int | None = None,
    nodes: Iterable[int] | None = None,
) -> Work[dict[str, State]]:
    """``listed`` as a coroutine.

    Args:
        longer_than_ms: only longer transactions, by the coordinator's clock; brokers before 3.8
            know no such request.
        nodes: only of these brokers.
    """

    async def work(manager: Any) -> dict[str, State]:
        version = manager.broker_version_data.api_version(ListTransactionsRequest)
        filters: dict[str, Any] = {
            "state_filters": [str(state) for state in states],
            "producer_id_filters": list(producer_ids),
        }
        if longer_than_ms is not None:
            filters |= {"duration_filter": longer_than_ms, "min_version": 1}
        if pattern is not None and version >= 2:
            filters["transactional_id_pattern"] = pattern
        by_id: dict[str, State] = {}
        asked = await brokers_of(manager) if nodes is None else nodes
        sent = [manager.send(ListTransactionsRequest(**filters), node_id=node) for node in asked]
        for future in sent:
            response = await future
            raise_for(response.error_code, "ListTransactions")
            for transaction in response.transaction_states:
                by_id[transaction.transactional_id] = State(transaction.transaction_state)
        return by_id

    return work


def end(
    settings: Settings,
    endings: Sequence[EndTxn],
    *,
    commit: bool,
    between: Callable[[], None] | None = None,
) -> dict[str, Reply]:
    """End transactions, all at once; by id, the coordinator's answer.

    Args:
        between: called after each but the last; they are then ended one by one.

    Raises:
        RefusedError: the principal may not write under an id.
        UnavailableError: a coordinator does not answer, or is moving; some may be ended.
    """

    async def work(manager: Any) -> dict[str, Reply]:
        nodes = await coordinators_of(manager, [one.transactional_id for one in endings])
        replies: dict[str, Reply] = {}
        at_once = IN_FLIGHT // 2 if between is None else 1
        for start in range(0, len(endings), at_once):
            if start and between is not None:
                between()
            sent = []
            for ending in endings[start : start + at_once]:
                node = nodes[ending.transactional_id]
                sent.append((ending, manager.send(_end_request(ending, commit), node_id=node)))
            for ending, future in sent:
                response = await future
                replies[ending.transactional_id] = _reply(response.error_code)
        return replies

    return cluster(settings).run("ending transactions", work) if endings else {}


def describing(ids: Sequence[str]) -> Work[dict[str, Description | None]]:
    """``describe`` as a coroutine."""

    async def work(manager: Any) -> dict[str, Description | None]:
        coordinators = routing_of(manager).coordinators
        remembered = any(id_ in coordinators for id_ in ids)
        described = await _described(manager, ids)
        if remembered and None in described.values():
            # Only the current coordinator may say that there is no such id: look it up.
            coordinators.clear()
            described = await _described(manager, ids)
        return described

    return work


async def _described(manager: Any, ids: Sequence[str]) -> dict[str, Description | None]:
    descriptions: dict[str, Description | None] = {}
    by_node: dict[int, list[str]] = defaultdict(list)
    for key, node in (await coordinators_of(manager, ids)).items():
        by_node[node].append(key)
    for node, some in by_node.items():
        request = DescribeTransactionsRequest(transactional_ids=some)
        response = await manager.send(request, node_id=node)
        for state in response.transaction_states:
            kind = errors.for_code(state.error_code)
            if kind is errors.TransactionalIdNotFoundError:
                descriptions[state.transactional_id] = None
                continue
            raise_for(state.error_code, f"transactional id {state.transactional_id}")
            descriptions[state.transactional_id] = _description(state)
    return descriptions


def _end_request(ending: EndTxn, commit: bool) -> Any:
    return EndTxnRequest(
        transactional_id=ending.transactional_id,
        producer_id=ending.producer_id,
        producer_epoch=ending.epoch,
        committed=commit,
        min_version=ending.version,
        max_version=ending.version,
    )


def _reply(code: int) -> Reply:
    kind = errors.for_code(code)
    if kind not in _REPLIES:
        raise kind("EndTxn")
    return _REPLIES[kind]


_REPLIES = {
    errors.NoError: Reply.DONE,
    errors.ConcurrentTransactionsError: Reply.BUSY,
    errors.ProducerFencedError: Reply.REFUSED,
    errors.InvalidProducerEpochError: Reply.REFUSED,  # so versions 0 and 1 report fencing
    errors.InvalidTxnStateError: Reply.REFUSED,
    errors.InvalidProducerIdMappingError: Reply.REFUSED,
}


def _description(answer: Any) -> Description:
    return Description(
        state=State(answer.transaction_state),
        producer_id=answer.producer_id,
        epoch=answer.producer_epoch,
        timeout_ms=answer.transaction_timeout_ms,
        start_ms=answer.transaction_start_time_ms,
        partitions=tuple(
            sorted((topic.topic, number) for topic in answer.topics for number in topic.partitions)
        ),
    )


def describe_open(
    settings: Settings, transactional_id: str, guess: Sequence[Partition]
) -> TransactionView:
    """Query a transaction's coordinator and, at the same time, the partitions of ``guess``.

    Partitions in the coordinator's answer that are not among them are queried afterwards.
    """

    async def work(manager: Any) -> TransactionView:
        # A guess may fail: a topic of the last transaction may be gone.
        both = gather(
            describing([transactional_id]), lambda m: _active(m, guess, errors.KafkaError)
        )
        described, guessed = await both(manager)
        now: Description | None = described[transactional_id]
        active, states = guessed or {}, None
        if now is not None:
            unasked = [place for place in now.partitions if place not in active]
            if (more := await _active(manager, unasked, *_MAY_NOT_ASK)) is not None:
                active |= more
                states = {p: produced(active[p], now.producer_id) for p in now.partitions}
        newest: int = manager.broker_version_data.api_version(EndTxnRequest)
        return TransactionView(now, states, min(newest, PLAIN_END_TXN))

    return cluster(settings).run("looking at a transaction", work)


_MAY_NOT_ASK = errors.AuthorizationError, errors.IncompatibleBrokerVersion


async def _active(
    manager: Any, places: Sequence[Partition], *passing: type[Exception]
) -> dict[Partition, Any] | None:
    """Their producers by their cached leader; None after one of these errors."""
    try:
        return await active_producers(manager, places, remembered=True) if places else {}
    except passing as error:
        log.debug("asking partitions for a transaction's records: %s", error)
        return None


def describe_and_list_late(
    settings: Settings, ids: Sequence[str], late: Sequence[tuple[Sequence[int], int]]
) -> tuple[dict[str, Description | None], frozenset[str]]:
    """``describe`` these, and at the same time list transactions that run for too long.

    Args:
        late: producer ids, and the milliseconds after which their transaction is late, by its
            coordinator's clock. Empty result for brokers before 3.8.
    """

    async def list_late(manager: Any) -> frozenset[str]:
        late_ids: set[str] = set()
        nodes = set((await coordinators_of(manager, ids)).values()) if late else set()
        for producer_ids, longer_than_ms in late:
            asking = _listing((State.ONGOING,), None, producer_ids, longer_than_ms, nodes)
            try:
                late_ids |= set(await asking(manager))
            except errors.KafkaError as error:
                if to_abs_error(error, "listing").retryable:
                    raise
        return frozenset(late_ids)

    both = gather(describing(ids), list_late)
    described, listed_late = cluster(settings).run("describing transactions", both)
    return described, listed_late
