"""Finds hanging transactions: open in a partition, unknown to any coordinator (KIP-664, KIP-890).

Readers with read_committed wait at their first record for good. The cause is a late record of an
ended transaction, on brokers that do not verify (``transaction.version`` below 2). The death of a
job's processes leaves none: the coordinator ends its transaction after the timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.producer_ids import active_producers
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import OPEN, Description, describe, listed


@dataclass(frozen=True, slots=True)
class PartitionTransaction:
    """A transaction that is open in a partition.

    Args:
        start_offset: of its first record there.
        last_ms: when its last record there was written, by the clock of its producer.
    """

    topic: str
    partition: int
    producer_id: int
    start_offset: int
    last_ms: int


def find_hanging(
    settings: Settings, places: Sequence[tuple[str, int]], before_ms: int
) -> list[PartitionTransaction]:
    """Transactions in these partitions that no coordinator knows and that exceed every timeout.

    The partitions are queried before and after the coordinators, so ones that end in between do not
    count.

    Args:
        before_ms: only those without a write since: now less the brokers'
            transaction.max.timeout.ms. Coordinators hide ids that the principal may not describe;
            only the age excludes healthy transactions of those.

    Raises:
        RefusedError: the principal may not read a topic.
        TargetError: a broker does not answer.
    """
    old = [each for each in open_in(settings, places) if each.last_ms < before_ms]
    if not old:
        return []
    ids = listed(settings, OPEN, producer_ids=sorted({each.producer_id for each in old}))
    known = describe(settings, list(ids))
    still = set(open_in(settings, places))
    return [each for each in unknown(old, known.values()) if each in still]


def unknown(
    there: Iterable[PartitionTransaction], known: Iterable[Description | None]
) -> list[PartitionTransaction]:
    """Those that belong to no transaction that is open at a coordinator."""
    owned = {
        (each.producer_id, place) for each in known if each is not None for place in each.partitions
    }
    return [e for e in there if (e.producer_id, (e.topic, e.partition)) not in owned]


def open_in(settings: Settings, places: Sequence[tuple[str, int]]) -> list[PartitionTransaction]:
    """The open transactions of these partitions."""

    async def work(manager: Any) -> list[PartitionTransaction]:
        return [
            PartitionTransaction(
                *place,
                producer.producer_id,
                producer.current_txn_start_offset,
                producer.last_timestamp,
            )
            for place, answer in (await active_producers(manager, places)).items()
            for producer in answer.active_producers
            if producer.current_txn_start_offset >= 0
        ]

    return cluster(settings).run("asking partitions for open transactions", work) if places else []
