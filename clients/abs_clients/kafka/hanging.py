"""Hanging transactions: open in a partition, and no coordinator will ever end them (KIP-664, KIP-890).

Readers with read_committed wait at their first record for good. They come from brokers' faults: a
late record of a transaction that had ended, on brokers that do not verify (``transaction.version``
below 2). None hangs because a job's processes died: its coordinator ends it after its timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.producer_ids import active_producers
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import Description, State, describe, listed

_OPEN = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE)


@dataclass(frozen=True, slots=True)
class PartitionTransaction:
    """A transaction that a partition holds for open.

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
    """Those among these partitions that no coordinator knows, and that are older than any may be.

    The partitions are asked before and after the coordinators: what ends in between is not meant.

    Args:
        before_ms: only what has written nothing since then: now less the brokers'
            transaction.max.timeout.ms. Coordinators do not tell of ids that the principal may not
            describe; the age alone tells that those of healthy transactions are not meant.

    Raises:
        RefusedError: the principal may not read a topic.
        TargetError: a broker does not answer.
    """
    old = [each for each in open_in(settings, places) if each.last_ms < before_ms]
    if not old:
        return []
    ids = listed(settings, _OPEN, producer_ids=sorted({each.producer_id for each in old}))
    known = describe(settings, list(ids))
    still = set(open_in(settings, places))
    return [each for each in unknown(old, known.values()) if each in still]


def unknown(
    there: Iterable[PartitionTransaction], known: Iterable[Description | None]
) -> list[PartitionTransaction]:
    """Those that are part of no transaction that a coordinator has open."""
    owned = {
        (each.producer_id, place) for each in known if each is not None for place in each.partitions
    }
    return [e for e in there if (e.producer_id, (e.topic, e.partition)) not in owned]


def open_in(settings: Settings, places: Sequence[tuple[str, int]]) -> list[PartitionTransaction]:
    """What these partitions hold for open."""

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
