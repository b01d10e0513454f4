"""Questions about transactions that do not wait for each other's answers: one look instead of four."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kafka.errors as errors

from abs_clients.kafka.errors import to_abs_error
from abs_clients.kafka.routing import coordinators_of
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import (
    Description,
    Produced,
    State,
    active_producers,
    describing,
    end_txn_version,
    listing,
    produced,
)
from abs_clients.kafka.wire import at_once, run

Partition = tuple[str, int]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Looked:
    """What there is of one transaction.

    Args:
        now: as its coordinator sees it; None where it knows no such id.
        found: what each of its partitions has from it; None where the principal may not ask.
        end_txn: the version of EndTxn that ends it.
    """

    now: Description | None
    found: Mapping[Partition, Produced | None] | None
    end_txn: int


def look(settings: Settings, transactional_id: str, guess: Sequence[Partition]) -> Looked:
    """Ask a transaction's coordinator, and at the same time the partitions that it may have written to.

    Args:
        guess: the partitions of its coordinator's answer that are not among them are asked afterwards.
    """

    async def work(manager: Any) -> Looked:
        both = at_once(describing([transactional_id]), lambda m: _guessed(m, guess))
        described, active = await both(manager)
        now: Description | None = described[transactional_id]
        version = end_txn_version(manager)
        if now is None:
            return Looked(now, None, version)
        more = await _active(manager, [place for place in now.partitions if place not in active])
        if more is None:
            return Looked(now, None, version)
        active |= more
        found = {place: produced(active[place], now.producer_id) for place in now.partitions}
        return Looked(now, found, version)

    return run(settings, "looking at a transaction", work)


async def _guessed(manager: Any, places: Sequence[Partition]) -> dict[Partition, Any]:
    """A guess that fails is none: a topic may be gone that the last transaction has written to."""
    try:
        return await active_producers(manager, places, remembered=True) if places else {}
    except errors.KafkaError as error:
        log.debug("%s", error)
        return {}


async def _active(manager: Any, places: Sequence[Partition]) -> dict[Partition, Any] | None:
    """What their producers are, by who led them last; None where the principal may not ask."""
    if not places:
        return {}
    try:
        return await active_producers(manager, places, remembered=True)
    except (errors.AuthorizationError, errors.IncompatibleBrokerVersion) as error:
        log.debug("records of a transaction are not counted: %s", error)
        return None


def describe_and_late(
    settings: Settings, ids: Sequence[str], late: Sequence[tuple[Sequence[int], int]]
) -> tuple[dict[str, Description | None], frozenset[str]]:
    """``describe`` these, and at the same time list those that have run for too long.

    Args:
        late: producer ids, and the milliseconds after which a transaction of theirs is late, by its
            coordinator's clock. Brokers before 3.8 cannot be asked: then none is.
    """

    async def list_late(manager: Any) -> frozenset[str]:
        found: set[str] = set()
        nodes = set((await coordinators_of(manager, ids)).values()) if late else set()
        for producer_ids, longer_than_ms in late:
            asking = listing((State.ONGOING,), None, producer_ids, longer_than_ms, nodes)
            try:
                found |= set(await asking(manager))
            except errors.KafkaError as error:
                if to_abs_error(error, "listing").retryable:
                    raise
        return frozenset(found)

    both = at_once(describing(ids), list_late)
    described, listed_late = run(settings, "describing transactions", both)
    return described, listed_late
