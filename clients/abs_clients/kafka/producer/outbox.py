"""Which batches may be sent now, which again, and what a broker's answer means. No I/O, no clock.

A broker takes a partition's batches only in the order of their sequence numbers, and remembers the last
five of a producer: one that it gets twice is acknowledged twice, and appended once (KIP-98). So the
oldest that is not acknowledged is at most four behind the newest that was sent.

Of a producer that a partition does not know yet it takes whatever comes first, as if what is missing
had been deleted since. So a partition's first batch goes alone: none may overtake it, on another
connection or to another broker.

After a failure that may pass nothing is sent to that partition until all of its batches are answered;
then those that failed go out again, in their order.
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
    """What an answer means for a batch."""

    ACKNOWLEDGED = auto()
    AGAIN = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch on its way.

    Args:
        number: of the partition's batches, from 0 on.
        count: of its records.
    """

    partition: int
    number: int
    count: int
    payload: bytes = field(repr=False)


@dataclass(slots=True)
class Lane:
    """One partition's batches, oldest first.

    Args:
        known: whether the partition knows the producer: it has acknowledged a batch.
    """

    waiting: deque[Batch] = field(default_factory=deque)
    flying: dict[int, Batch] = field(default_factory=dict)
    failed: dict[int, Batch] = field(default_factory=dict)
    known: bool = False

    @property
    def may_send(self) -> bool:
        """Whether the next batch would leave none behind that a broker might have forgotten."""
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
    """All batches of one transaction that are not acknowledged."""

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = defaultdict(Lane)
        self.unsent_bytes = 0
        """Of batches that wait, or wait again."""
        self.unfinished = 0
        """Batches."""
        self.flying = 0
        """Batches that are sent and not answered."""
        self.flying_bytes = 0

    def add(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._lanes[batch.partition].waiting.append(batch)
            self.unsent_bytes += len(batch.payload)
            self.unfinished += 1

    def take(self, most_bytes: int) -> list[Batch]:
        """For one request: at most one batch of each partition, as the protocol wants it.

        They are on their way from now on. The first is taken whatever its size.
        """
        taken: list[Batch] = []
        room = most_bytes
        for lane in self._lanes.values():
            if not lane.may_send or (taken and len(lane.waiting[0].payload) > room):
                continue
            batch = lane.waiting.popleft()
            lane.flying[batch.number] = batch
            room -= len(batch.payload)
            taken.append(batch)
        size = sum(len(batch.payload) for batch in taken)
        self.flying += len(taken)
        self.flying_bytes += size
        self.unsent_bytes -= size
        return taken

    def answered(self, batch: Batch, code: int) -> Verdict:
        """Take note of a broker's answer.

        Args:
            code: the protocol's; any of ``PRODUCE_RETRIABLE`` where nothing was sent or answered.
        """
        lane = self._lanes[batch.partition]
        verdict = _verdict(lane, batch, code)
        if verdict is not Verdict.REFUSED:
            again = verdict is Verdict.AGAIN
            lane.answered(batch, again=again)
            self.flying -= 1
            self.flying_bytes -= len(batch.payload)
            self.unfinished -= not again
            self.unsent_bytes += again * len(batch.payload)
        return verdict


def _verdict(lane: Lane, batch: Batch, code: int) -> Verdict:
    if code in (_OK, _DUPLICATE):
        return Verdict.ACKNOWLEDGED
    # Out of order behind one that has not arrived is what follows; without such a one the broker has
    # lost records that it had acknowledged, and no repetition brings them back.
    follows = code == _OUT_OF_ORDER and min((*lane.flying, *lane.failed)) < batch.number
    return Verdict.AGAIN if follows or code in PRODUCE_RETRIABLE else Verdict.REFUSED
