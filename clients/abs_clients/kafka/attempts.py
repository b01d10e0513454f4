"""Records that are visible before their epoch is decided: whose they are, and which of them count.

Under ``protocol=idempotent`` a sink sends records at once, each with the header ``HEADER`` that names
the attempt that wrote it. When an epoch is decided, one **winners** record goes to a side topic
(``side_topic``): the attempts whose records count. All others of that epoch are losers: copies by
retried or speculative tasks, by zombies, by runs that died.

How a reader uses it (a source; nothing here speaks to a broker):

1. Read the side topic from its beginning to its end with read_committed (one partition; keep it, and
   read on from there the next time) and ``Winners.add`` each value.
2. To find how far an epoch of one's own may read: ``winners.judge(headers)`` over the records of a
   batch in offset order, ``headers`` being the value of the header ``HEADER`` of each (null where it
   has none: such a record is nobody's attempt and counts).
3. ``judged.stop`` is the row of the first record that is not decided yet: stop the range before its
   offset, in every partition on its own. What is left of the batch, ``batch.slice(0, stop)``, keeps
   the rows where ``judged.keep`` is true.

A verdict never changes once it is given: a range that was read is read again with the same result, as
long as the side topic has its records. Pass ``complete=False`` where its first offset is not 0: some
winners were deleted then, and what they decided is unknown (``Winners.judge`` raises; it never drops a
record that may have won). Pass ``there=False`` where there is no side topic: it is made before the
first record is sent, so an attempt without one has lost it. An undecided record stays undecided while
its job is down, and for good if the job never runs again; ``Judged.undecided`` names it.

**A side topic that was lost and made anew** begins at offset 0, too. So each winners record says which
epoch its register had decided before (``Decided.after``): where that one's record is not there, what it
decided is unknown, and ``Winners.judge`` raises.

**Why a loser is known to be one** (``_decided``). Decisions of a register are made in the order of
(generation, epoch): a lower generation can decide nothing any more (I5), and within one generation
epochs are decided in ascending order and what was left out stays out. So after a winners record of
(G, E) no attempt with (generation, epoch) <= (G, E) can ever win that is not named already. This holds
over adoptions, in which epochs are counted anew, but generations are not.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from abs_core.errors import CorruptionError
from abs_core.model import HandleName
from abs_core.strictjson import HIGHEST, NEWER, fields, of, parse, text, version, whole

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
    """What each record of this attempt carries."""
    return HEADER, str(handle).encode("ascii")


def attempt_of(value: bytes | None) -> HandleName | None:
    """The attempt that a header's value names; None where there is no header.

    Raises:
        CorruptionError: it is not a handle's name: the record is not what was written.
    """
    if value is None:
        return None
    handle = HandleName.parse(value.decode("ascii", errors="replace"))
    if handle is None:
        raise CorruptionError(
            f"A record's header {HEADER} is {value[:100]!r}, which names no attempt.",
            remedy="look who else writes to the topic: this header is abs-sinks' own.",
        )
    return handle


@dataclass(frozen=True, slots=True)
class Decided:
    """One winners record: the attempts that a decided epoch consists of.

    Args:
        register: id of the register that decided.
        job: its key.
        generation: of the run that decided.
        epoch: what was decided.
        winners: handles; empty where the epoch has no rows.
        note: for people: who gave up what was not decided; empty where a run decided.
        after: the epoch that this register had decided last before, under any protocol;
            ``BEGINNING`` if there was none; None where the record does not tell (an older release's).
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
        """For the record's key: so that people find it."""
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
        """Read a winners record.

        Raises:
            CorruptionError: it is none, or of a version this release does not know.
        """
        try:
            found = fields(parse(value or b""))
            version(found["version"], VERSION)
            register, job = text(found["register"]), text(found["job"])
            winners = tuple(_winner(register, job, one) for one in of(list, found["winners"]))
            generation = whole(found["generation"], 0, HIGHEST)
            epoch = whole(found["epoch"], NO_DECISION, HIGHEST)
            note = text(found.get("note", ""))
            after = found.get("after")
            if after is not None:
                after = whole(after, BEGINNING, HIGHEST)
            return cls(register, job, generation, epoch, winners, note, after)
        except ValueError as error:
            raise CorruptionError(
                f"A winners record cannot be read: {error}.",
                remedy=f"look who else writes to the side topic; or {NEWER}.",
            ) from error


def _winner(register: str, job: str, value: object) -> HandleName:
    generation, epoch, partition, attempt = of(list, value)
    numbers = whole(generation), whole(epoch), whole(partition)
    name = ":".join(["abs1", register, job, *map(str, numbers), text(attempt)])
    handle = HandleName.parse(name)
    if handle is None:
        raise ValueError(f"{name[:300]!a} is no name of a handle")
    return handle


@dataclass(frozen=True, slots=True)
class Judged:
    """What is to be done with the records of a batch.

    Args:
        keep: per record, true where it counts; of use up to ``stop``.
        stop: number of the first record that is not decided; the batch's length if there is none.
        undecided: the attempt that it is of, and None if there is none.
    """

    keep: pa.BooleanArray
    stop: int
    undecided: HandleName | None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a winners record stands among those of its register."""

    generation: int
    epoch: int
    after: int | None

    @property
    def at(self) -> tuple[int, int]:
        return self.generation, self.epoch

    def __lt__(self, other: _Place) -> bool:
        return self.at < other.at


@dataclass(slots=True)
class Winners:
    """What is decided, as far as the side topic was read.

    Args:
        complete: whether the side topic still had its first record when it was read.
        there: whether there is a side topic.
    """

    complete: bool = True
    there: bool = True
    _names: set[HandleName] = field(default_factory=set)
    _places: dict[tuple[str, str], list[_Place]] = field(default_factory=dict)

    def add(self, decided: Decided | bytes | None) -> None:
        """Take the next winners record, as it is or as a record's value."""
        if not isinstance(decided, Decided):
            decided = Decided.from_bytes(decided)
        self._names.update(decided.winners)
        places = self._places.setdefault((decided.register, decided.job), [])
        insort(places, _Place(decided.generation, decided.epoch, decided.after))

    def counts(self, handle: HandleName) -> bool | None:
        """Whether records of this attempt count; None while that is not decided.

        Raises:
            CorruptionError: its winners record is deleted, or the whole side topic, so nobody can tell
                any more.
        """
        if handle in self._names:
            return True
        if not self.there:
            raise _lost(handle, "There is no side topic, which is made before any attempt writes")
        places = self._places.get((handle.register, handle.job), [])
        place = handle.generation, handle.epoch
        next_at = bisect_left(places, place, key=lambda each: each.at)
        if next_at == len(places):
            return None
        # The next record that is there tells whether one is missing between it and this attempt.
        after = places[next_at].after
        if (not self.complete and place < places[0].at) or (
            after is not None and handle.epoch <= after and place != places[next_at].at
        ):
            raise _lost(handle, "The winners record of this attempt was deleted or lost")
        return False

    def judge(self, headers: pa.Array | pa.ChunkedArray) -> Judged:
        """Judge the records of a batch, in the order of their offsets.

        Args:
            headers: of each record, the value of its header ``HEADER`` (binary or text), or null.

        Raises:
            CorruptionError: see ``counts`` and ``attempt_of``.
        """
        array = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
        # A batch has thousands of records of a few attempts: judge each attempt once.
        encoded = array.cast(pa.binary()).dictionary_encode()
        verdicts = [self._verdict(value) for value in encoded.dictionary.to_pylist()]
        codes = encoded.indices.fill_null(len(verdicts)).to_numpy(zero_copy_only=False)
        counts = np.array([v is not False for v in verdicts] + [True])[codes]
        pending = np.array([v is None for v in verdicts] + [False])[codes]
        stop = int(np.argmax(pending)) if pending.any() else len(array)
        undecided = None
        if stop < len(array):
            undecided = attempt_of(array[stop].cast(pa.binary()).as_py())
        return Judged(pa.array(counts), stop, undecided)

    def _verdict(self, value: bytes) -> bool | None:
        handle = attempt_of(value)
        assert handle is not None, "a dictionary holds no null"
        return self.counts(handle)


def _lost(handle: HandleName, why: str) -> CorruptionError:
    return CorruptionError(
        f"{why}: it cannot be told whether the attempt's records count.",
        handle=handle,
        remedy="restore the side topic, and keep it longer than the data (retention.ms); to go on "
        "without these records, begin behind them; winners=false reads the records of every attempt.",
    )


def read_winners(
    values: Iterable[bytes | None], *, complete: bool = True, there: bool = True
) -> Winners:
    """From the values of a side topic's records, in any order."""
    winners = Winners(complete=complete, there=there)
    for value in values:
        winners.add(value)
    return winners
