"""Decides which batches may be sent or resent, and what an answer means. No I/O, no clock.

A broker takes a partition's batches only in sequence, and remembers a producer's last five: a
duplicate is acknowledged and not appended (KIP-98). So the oldest unacknowledged batch is at most
four behind the newest that was sent.

From a producer that is new to a partition it takes any first batch, as if the missing ones had been
deleted. So a partition's first batch is sent alone: none may overtake it, on another connection or
to another broker.

After a retriable failure nothing is sent to that partition until all of its batches are answered;
then the failed ones are resent in order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from abs_clients.kafka.codes import PRODUCE_RETRIABLE

FLYING = 5
"""Batches of a partition from the oldest without an answer on, at most: what a broker remembers."""

_OK = 0
_OUT_OF_ORDER, _DUPLICATE = 45, 46


class Verdict(Enum):
    """The meaning of an answer for a batch."""

    ACKNOWLEDGED = auto()
    AGAIN = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch.

    Args:
        number: of the partition's batches, from 0 on.
        count: of its records.
    """

    partition: int
    number: int
    count: int
    payload: bytes = field(repr=False)


@dataclass(slots=True)
class PartitionQueue:
    """One partition's batches, oldest first; ``known`` after the first acknowledgement."""

    waiting: deque[Batch] = field(default_factory=deque)
    flying: dict[int, Batch] = field(default_factory=dict)
    failed: dict[int, Batch] = field(default_factory=dict)
    known: bool = False

    @property
    def may_send(self) -> bool:
        """Whether all unanswered batches stay among the five that a broker remembers."""
        if self.failed or not self.waiting or (self.flying and not self.known):
            return False
        following = self.waiting[0].number
        return following < min((*self.flying, following)) + FLYING

    def answered(self, batch: Batch, *, again: bool) -> None:
        del self.flying[batch.number]
        if again:
            self.failed[batch.number] = batch
        else:
            self.known = True
        if self.failed and not self.flying:
            self.waiting.extendleft(self.failed[n] for n in sorted(self.failed, reverse=True))
            self.failed.clear()


class Outbox:
    """All unacknowledged batches of one transaction."""

    def __init__(self) -> None:
        self._queues: dict[int, PartitionQueue] = defaultdict(PartitionQueue)
        self.unsent_bytes = 0
        """Bytes of the batches that wait, or wait again."""
        self.unfinished = 0
        """Batches."""
        self.flying_bytes = 0
        """Bytes of the batches that are sent and not answered."""

    def add(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._queues[batch.partition].waiting.append(batch)
            self.unsent_bytes += len(batch.payload)
            self.unfinished += 1

    def take(self, most_bytes: int) -> list[Batch]:
        """Batches for one request, now in flight: at most one per partition (protocol).

        The first is taken whatever its size.
        """
        taken: list[Batch] = []
        room = most_bytes
        for queue in self._queues.values():
            if not queue.may_send or (taken and len(queue.waiting[0].payload) > room):
                continue
            batch = queue.waiting.popleft()
            queue.flying[batch.number] = batch
            room -= len(batch.payload)
            taken.append(batch)
        size = sum(len(batch.payload) for batch in taken)
        self.flying_bytes += size
        self.unsent_bytes -= size
        return taken

    def answered(self, batch: Batch, code: int) -> Verdict:
        """Note a broker's answer.

        ``code`` is the protocol's; any of ``PRODUCE_RETRIABLE`` if nothing was sent or answered.
        """
        queue = self._queues[batch.partition]
        verdict = _verdict(queue, batch, code)
        if verdict is not Verdict.REFUSED:
            again = verdict is Verdict.AGAIN
            queue.answered(batch, again=again)
            self.flying_bytes -= len(batch.payload)
            self.unfinished -= not again
            self.unsent_bytes += again * len(batch.payload)
        return verdict


def _verdict(queue: PartitionQueue, batch: Batch, code: int) -> Verdict:
    if code in (_OK, _DUPLICATE):
        return Verdict.ACKNOWLEDGED
    # Out of order behind one that has not arrived is what follows; without such a one the broker has
    # lost records that it had acknowledged, and no repetition brings them back.
    follows = code == _OUT_OF_ORDER and min((*queue.flying, *queue.failed)) < batch.number
    return Verdict.AGAIN if follows or code in PRODUCE_RETRIABLE else Verdict.REFUSED
