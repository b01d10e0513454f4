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
record that may have won). An undecided record stays undecided while its job is down, and for good if
the job never runs again; ``Winners.undecided`` names it for the error or the log.

**Why a loser is known to be one** (``_decided``). Decisions of a register are made in the order of
(generation, epoch): a lower generation can decide nothing any more (I5), and within one generation
epochs are decided in ascending order and what was left out stays out. So after a winners record of
(G, E) no attempt with (generation, epoch) <= (G, E) can ever win that is not named already. This holds
over adoptions, in which epochs are counted anew, but generations are not.
"""

from __future__ import annotations

import json
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
    """

    register: str
    job: str
    generation: int
    epoch: int
    winners: tuple[HandleName, ...]
    note: str = ""

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
            return cls(register, job, generation, epoch, winners, note)
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


@dataclass(slots=True)
class Winners:
    """What is decided, as far as the side topic was read.

    Args:
        complete: whether the side topic still had its first record when it was read.
    """

    complete: bool = True
    _names: set[HandleName] = field(default_factory=set)
    _last: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _first: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, decided: Decided | bytes | None) -> None:
        """Take the next winners record, as it is or as a record's value."""
        if not isinstance(decided, Decided):
            decided = Decided.from_bytes(decided)
        self._names.update(decided.winners)
        register, place = (decided.register, decided.job), (decided.generation, decided.epoch)
        self._last[register] = max(place, self._last.get(register, place))
        self._first[register] = min(place, self._first.get(register, place))

    def counts(self, handle: HandleName) -> bool | None:
        """Whether records of this attempt count; None while that is not decided.

        Raises:
            CorruptionError: its winners record is deleted, so nobody can tell any more.
        """
        if handle in self._names:
            return True
        register, place = (handle.register, handle.job), (handle.generation, handle.epoch)
        if register not in self._last or place > self._last[register]:
            return None
        if not self.complete and place < self._first[register]:
            raise CorruptionError(
                "The winners record of this attempt was deleted before the attempt's records: it "
                "cannot be told whether they count.",
                job=handle.job,
                epoch=handle.epoch,
                handle=str(handle),
                remedy="keep the side topic longer than the data (retention.ms); to go on without "
                "these records, begin behind them.",
            )
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


def read_winners(values: Iterable[bytes | None], *, complete: bool = True) -> Winners:
    """From the values of a side topic's records, in any order."""
    winners = Winners(complete=complete)
    for value in values:
        winners.add(value)
    return winners
