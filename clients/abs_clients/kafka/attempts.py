"""Decides which records of ``protocol=idempotent`` count: they are visible before their decision.

The sink sends records at once, each with the header ``HEADER`` that names its attempt. When an
epoch is decided, one **winners** record goes to a side topic (``side_topic``): the attempts whose
records count. All others of that epoch are losers: copies by retried or speculative tasks, by
zombies, by failed runs.

Use by a reader (a source; nothing here does I/O):

1. Read the side topic from beginning to end with read_committed (one partition; keep it, and
   continue from there the next time) and give its values to ``Winners.read``.
2. To find how far an epoch may read: ``winners.filter(headers)`` over the records of a batch in
   offset order, with the value of each record's header ``HEADER`` (null without one: such a
   record belongs to no attempt and counts).
3. ``filtered.stop`` is the row of the first undecided record: end the range before its offset, in
   each partition separately. Of ``batch.slice(0, stop)`` keep the rows where ``filtered.keep``.

A verdict never changes: a range is read again with the same result, as long as the side topic has
its records. Pass ``complete=False`` if its first offset is not 0: then some winners were deleted,
and ``Winners.filter`` raises rather than drop a record that may have won. Pass ``there=False`` if
there is no side topic: it is created before the first record is sent, so an attempt without one has
lost it. An undecided record stays undecided while its job is down, and for good if the job never
runs again; ``FilterResult.undecided`` names it.

**A side topic that was lost and recreated** begins at offset 0, too. So each winners record names
the epoch that its register had decided before (``Decided.after``); if that one's record is missing,
``Winners.filter`` raises.

**Losers** (``_decided``). Decisions of a register are ordered by (generation, epoch): a lower
generation can decide nothing any more (I5), and within one generation epochs are decided in
ascending order, and skipped ones stay out. So after a winners record of (G, E) no attempt with
(generation, epoch) <= (G, E) can win that is not named already. This holds over adoptions, which
restart epochs but not generations.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from abs_core.errors import CorruptionError
from abs_core.model import HandleName
from abs_core.strictjson import MAX_NUMBER, fields, of, parse, reading, text, version, whole

HEADER = "abs.attempt"
"""The header's key; its value is the handle's name as text, in ASCII."""

VERSION = 1
_SUFFIX = ".abs-winners"

NO_DECISION = -1
"""The epoch of a winners record that decides none: a person has given up what is not decided yet. All
attempts of lower generations that no other record names are losers by it."""

BEGINNING = -1
"""Before the first epoch of a lineage: no epoch was decided."""


def side_topic(topic: str) -> str:
    """The topic of the winners records for a data topic."""
    return f"{topic}{_SUFFIX}"


def header_of(handle: HandleName) -> tuple[str, bytes]:
    """The header of each record of this attempt."""
    return HEADER, str(handle).encode("ascii")


def attempt_of(value: bytes | None) -> HandleName | None:
    """The attempt in a header's value; None without a header.

    Raises CorruptionError if it is not a handle's name.
    """
    if value is None:
        return None
    handle = HandleName.parse(value.decode("ascii", errors="replace"))
    if handle is None:
        raise CorruptionError(
            f"A record's header {HEADER} is {value[:100]!r}, which is not the name of an attempt.",
            remedy="find out who else writes to the topic: this header is reserved for abs-sinks.",
        )
    return handle


def refuse_attempts(values: Iterable[bytes | None], topic: str) -> None:
    """Raise CorruptionError for an attempt in a topic without a side topic.

    Args:
        values: of the header ``HEADER`` of the topic's records.
    """
    for value in values:
        if value is not None:
            raise CorruptionError(
                f"The topic {topic} was written by protocol=idempotent, so of several attempts only "
                f"one counts. The side topic {side_topic(topic)}, which records which one, did not "
                "exist when this read was planned, or the principal may not describe it.",
                handle=attempt_of(value),
                remedy="restore the side topic, and set winners=true; winners=false reads the records "
                "of every attempt.",
            )


@dataclass(frozen=True, slots=True)
class Decided:
    """One winners record: the attempts of a decided epoch.

    Args:
        register: id of the register that decided.
        job: its key.
        generation: of the run that decided.
        winners: handles; empty for an epoch without rows.
        note: for people: who gave up undecided attempts; empty if a run decided.
        after: the epoch that this register decided before, under any protocol; ``BEGINNING`` if
            none; None if unknown (an older release's record).
    """

    register: str
    job: str
    generation: int
    epoch: int
    winners: tuple[HandleName, ...]
    note: str = ""
    after: int | None = None

    @property
    def key(self) -> bytes:
        """The record's key, for people to find it."""
        return f"{self.job}:{self.register}:{self.generation}:{self.epoch}".encode("ascii")

    def to_bytes(self) -> bytes:
        """The record's value."""
        # Of a winner only what differs from the decision: epochs of many tasks stay small.
        winners = [[w.generation, w.epoch, w.partition, w.attempt] for w in self.winners]
        value = {
            "version": VERSION,
            "register": self.register,
            "job": self.job,
            "generation": self.generation,
            "epoch": self.epoch,
            "winners": winners,
        }
        if self.note:
            value["note"] = self.note
        if self.after is not None:
            value["after"] = self.after
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode("ascii")

    @classmethod
    def from_bytes(cls, value: bytes | None) -> Decided:
        """Parse a winners record.

        Raises CorruptionError for other content, or a version that this release does not know.
        """
        with reading("A winners record", "find out who else writes to the side topic"):
            values = fields(parse(value or b""))
            version(values["version"], VERSION)
            register, job = text(values["register"]), text(values["job"])
            winners = tuple(_winner(register, job, one) for one in of(list, values["winners"]))
            generation = whole(values["generation"], 0, MAX_NUMBER)
            epoch = whole(values["epoch"], NO_DECISION, MAX_NUMBER)
            note = text(values.get("note", ""))
            after = values.get("after")
            if after is not None:
                after = whole(after, BEGINNING, MAX_NUMBER)
            return cls(register, job, generation, epoch, winners, note, after)


def _winner(register: str, job: str, value: object) -> HandleName:
    generation, epoch, partition, attempt = of(list, value)
    numbers = whole(generation), whole(epoch), whole(partition)
    return HandleName.read(":".join(["abs1", register, job, *map(str, numbers), text(attempt)]))


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Which records of a batch count.

    Args:
        keep: per record, valid up to ``stop``.
        stop: index of the first undecided record, or the batch's length.
        undecided: its attempt, or None.
    """

    keep: pa.BooleanArray
    stop: int
    undecided: HandleName | None


class _Place(NamedTuple):
    """Position of a winners record among those of its register: its generation and epoch."""

    at: tuple[int, int]
    after: int | None


@dataclass(slots=True)
class Winners:
    """The decisions in the side topic, as far as it was read.

    Args:
        complete: whether the side topic still had its first record.
        there: whether there is a side topic.
    """

    complete: bool = True
    there: bool = True
    _names: set[HandleName] = field(default_factory=set)
    _places: dict[tuple[str, str], list[_Place]] = field(default_factory=dict)

    def read(self, values: Iterable[bytes | None]) -> Self:
        """Add the values of a side topic's records, in any order."""
        for decided in map(Decided.from_bytes, values):
            self._names.update(decided.winners)
            places = self._places.setdefault((decided.register, decided.job), [])
            place = _Place((decided.generation, decided.epoch), decided.after)
            insort(places, place, key=attrgetter("at"))
        return self

    def counts(self, handle: HandleName) -> bool | None:
        """Whether records of this attempt count; None while undecided.

        Raises CorruptionError if its winners record, or the side topic, is deleted.
        """
        if handle in self._names:
            return True
        if not self.there:
            raise _lost(
                handle, "There is no side topic, although it is created before any attempt writes"
            )
        places = self._places.get((handle.register, handle.job), [])
        place = handle.generation, handle.epoch
        next_at = bisect_left(places, place, key=attrgetter("at"))
        if next_at == len(places):
            return None
        # The next record that is there tells whether one is missing between it and this attempt.
        after = places[next_at].after
        if (not self.complete and place < places[0].at) or (
            after is not None and handle.epoch <= after and place != places[next_at].at
        ):
            raise _lost(handle, "The winners record of this attempt was deleted or lost")
        return False

    def filter(self, headers: pa.Array | pa.ChunkedArray) -> FilterResult:
        """Tell which records of a batch count, in the order of their offsets.

        ``headers`` are the values of the header ``HEADER`` (binary or text), or null. Raises
        CorruptionError, see ``counts`` and ``attempt_of``.
        """
        array = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
        # A batch has thousands of records of a few attempts: look at each attempt once.
        encoded = array.cast(pa.binary()).dictionary_encode()
        verdicts = [self._verdict(value) for value in encoded.dictionary.to_pylist()]
        codes = encoded.indices.fill_null(len(verdicts)).to_numpy(zero_copy_only=False)
        counts = np.array([v is not False for v in verdicts] + [True])[codes]
        pending = np.array([v is None for v in verdicts] + [False])[codes]
        stop = int(np.argmax(pending)) if pending.any() else len(array)
        undecided = None
        if stop < len(array):
            undecided = attempt_of(array[stop].cast(pa.binary()).as_py())
        return FilterResult(pa.array(counts), stop, undecided)

    def _verdict(self, value: bytes) -> bool | None:
        handle = attempt_of(value)
        assert handle is not None, "a dictionary holds no null"
        return self.counts(handle)


def _lost(handle: HandleName, why: str) -> CorruptionError:
    return CorruptionError(
        f"{why}: it is unknown whether the attempt's records count.",
        handle=handle,
        remedy="restore the side topic, and keep it longer than the data (retention.ms); to "
        "continue without these records, start after them; winners=false reads the records of "
        "every attempt.",
    )
