"""Producer ids: taking one over, which fences its holder, and what partitions know of one.

Ends what is open under a transactional id, by taking the id over (InitProducerId). Never by
EndTxn(abort): the producer that holds the id may be alive, would go on in the same epoch, and part of
its records would become visible (seen). InitProducerId fences it first. It does not look which
transaction it ends, so it is for ids whose transaction no decision can name (I4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kafka.errors as errors
from kafka.protocol.admin.transactions import DescribeProducersRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest
from tenacity import (
    RetryError,
    Retrying,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.routing import coordinators_of, leaders_of, raise_for
from abs_clients.kafka.setting_table import TWO_PHASE
from abs_clients.kafka.settings import Settings
from abs_core.errors import RefusedError, UnavailableError

TAKEN_OVER = -1, -1
"""Sent as producer id and epoch by a process that does not own the transactional id yet."""

_WITHOUT_TIMEOUT = {"enable2_pc": True, "min_version": 6, "max_version": 6}

UNSTABLE = "unstable.api.versions.enable"
"""The brokers' setting that allows the request's version; the other one is ``TWO_PHASE``, too."""


def _no_two_phase(settings: Settings) -> RefusedError:
    """The error where brokers allow no such transactions; they do not tell what is lacking."""
    return RefusedError(
        "The brokers do not allow transactions without a timeout (KIP-939) to "
        f"{settings.principal}: kafka.{TWO_PHASE}=true.",
        remedy=f"set {TWO_PHASE}=true and {UNSTABLE}=true at every broker (Kafka 4.1 or newer), "
        "and allow the principal WRITE and TWO_PHASE_COMMIT on transactional ids that begin with abs1: "
        "(a prefixed ACL); or leave the option out.",
    )


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition has from one producer id.

    Args:
        epoch: the newest it has seen.
        last_sequence: number of the last record under that epoch, from 0 on.
        start_offset: of the first record of its open transaction; -1 where none is open.
    """

    epoch: int
    last_sequence: int
    start_offset: int


def init_producer_id(
    settings: Settings,
    transactional_id: str,
    timeout_ms: int | None = None,
    held: tuple[int, int] = TAKEN_OVER,
    *,
    two_phase: bool = False,
) -> tuple[int, int]:
    """Return when the id's producer is fenced and what it had open is aborted.

    Args:
        timeout_ms: of its transactions from now on; None: as the settings say.
        held: producer id and epoch of who asks, who holds the id: only then the epoch is raised
            (KIP-360). Not given: the id is taken over, whoever holds it.
        two_phase: its transactions get no timeout (KIP-939).

    Returns:
        producer id and epoch that are the id's from now on.

    Raises:
        FencedError: somebody else has taken the id over since.
        RefusedError: with ``two_phase``: the brokers do not allow it.
        TargetError: the coordinator refuses, or does not get done in time.
    """
    more = _WITHOUT_TIMEOUT if two_phase else {"max_version": 5}

    async def work(manager: Any) -> tuple[int, int] | None:
        nodes = await coordinators_of(manager, [transactional_id])
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms or settings.transaction_timeout_ms,
            producer_id=held[0],
            producer_epoch=held[1],
            **more,
        )
        response = await manager.send(request, node_id=nodes[transactional_id])
        if errors.for_code(response.error_code) is errors.ConcurrentTransactionsError:
            return None  # it is being aborted
        raise_for(response.error_code, "InitProducerId")
        return response.producer_id, response.producer_epoch

    trying = Retrying(
        retry=retry_if_result(lambda done: done is None),
        wait=wait_random_exponential(multiplier=0.005, max=0.2),
        stop=stop_after_delay(timeouts.FENCE_SECONDS),
    )
    doing = f"initialising transactional id {transactional_id}"
    try:
        producer = trying(lambda: cluster(settings).run(doing, work))
    except RefusedError as error:
        raise (_no_two_phase(settings) if two_phase else error) from error
    except RetryError as error:
        raise UnavailableError(
            "The abort under a transactional id was not finished within "
            f"{timeouts.FENCE_SECONDS:g} s.",
            handle=transactional_id,
            remedy="check that the leaders of the topic's partitions are up.",
        ) from error
    assert producer is not None
    return producer


def new_producer_id(settings: Settings) -> tuple[int, int]:
    """A producer id of one's own and its epoch, for an idempotent producer without transactions.

    Raises:
        TargetError: the broker refuses, or has none to give just now.
    """

    async def work(manager: Any) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=-1, max_version=5
        )
        response = await manager.send(request)
        raise_for(response.error_code, "InitProducerId")
        return response.producer_id, response.producer_epoch

    return cluster(settings).run("asking for a producer id", work)


def describe_producers(
    settings: Settings, partitions: Sequence[tuple[str, int]], producer_id: int
) -> dict[tuple[str, int], ProducerState | None]:
    """What each partition has from a producer id; None if nothing. Needs READ on the topics.

    Raises:
        RefusedError: the principal may not.
    """

    async def work(manager: Any) -> dict[tuple[str, int], ProducerState | None]:
        active = await active_producers(manager, partitions)
        return {place: produced(answer, producer_id) for place, answer in active.items()}

    return cluster(settings).run("asking partitions for a producer's records", work)


async def active_producers(
    manager: Any, partitions: Sequence[tuple[str, int]], *, remembered: bool = False
) -> dict[tuple[str, int], Any]:
    """What the leader of each partition answers to DescribeProducers. Needs READ on the topics.

    Args:
        remembered: ask whoever was its leader last. A broker that follows now answers, too, and may
            lag behind: the caller must look again before it trusts what seems to lack.
    """
    states: dict[tuple[str, int], Any] = {}
    leaders = await leaders_of(manager, partitions, remembered=remembered)
    for node, some in leaders.items():
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in some:
            by_topic[topic].append(partition)
        topic_request = DescribeProducersRequest.TopicRequest
        request = DescribeProducersRequest(
            topics=[topic_request(name=t, partition_indexes=p) for t, p in by_topic.items()]
        )
        for topic in (await manager.send(request, node_id=node)).topics:
            for state in topic.partitions:
                raise_for(state.error_code, f"{topic.name}-{state.partition_index}")
                states[topic.name, state.partition_index] = state
    return states


def produced(answer: Any, producer_id: int) -> ProducerState | None:
    for producer in answer.active_producers:
        if producer.producer_id == producer_id:
            return ProducerState(
                producer.producer_epoch, producer.last_sequence, producer.current_txn_start_offset
            )
    return None
