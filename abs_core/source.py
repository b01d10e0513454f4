"""What a replayable source must offer. Protocols and frozen values only; nothing is implemented here.

A source is written once against these and read by every engine. Spark asks for ranges: ``latest``
bounds an epoch, ``splits`` cuts it, and the engine's own log keeps the offsets. The embedded runtime
opens splits without an end and keeps each reader's ``position`` in its snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from abs_core.patience import Patience

Offsets = str
"""A place in the whole source, as JSON text with sorted keys: equal places are equal texts."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much one epoch may take; None: no bound of that kind.

    Args:
        rows: at most so many records.
        files: at most so many files.
        bytes: stop after the file or record with which so many bytes are reached.
    """

    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A part of the source that one reader reads, from a place and up to another.

    Args:
        source: what it is a part of: a topic's partition, a file; for people and for assignment.
        start: where to begin, in the source's own terms, as JSON text.
        end: where to stop; None: never, new data is waited for.
    """

    source: str
    start: str
    end: str | None


class Reader(Protocol):
    """Reads one split. Not thread-safe."""

    @property
    def position(self) -> Split:
        """What of the split is not yet returned: opened again, it yields exactly the rest.

        Holds between any two calls of ``read``; this is what a snapshot keeps.
        """
        ...

    @property
    def finished(self) -> bool:
        """Whether the end of the split is reached; never true without an end."""
        ...

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        """The next batch; None where the split is finished, or nothing came in time.

        Raises:
            ReplayMismatchError: what was to be read again is gone, or is not what it was.
            UnavailableError: the source cannot be reached now.
            RefusedError: it refuses for good.
        """
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """Data that can be read again from any place it was once at. Cheap to build; pickled as it is.

    Reading the same range twice yields the same rows in the same order within a split, or raises
    ``ReplayMismatchError``; it never differs in silence.
    """

    @property
    def schema(self) -> pa.Schema:
        """Of every batch. May have to ask the source once."""
        ...

    def initial(self) -> Offsets:
        """Where a job that has no offsets yet begins; asked once in a job's life."""
        ...

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        """The furthest place that can be read now, within the limit; ``start`` where there is nothing.

        Raises:
            ReplayMismatchError: ``start`` is no place in this source any more (a topic was
                truncated or made anew, a file has changed).
        """
        ...

    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        """The parts of what lies between two places; without an end, parts that go on for ever."""
        ...

    def open(self, split: Split) -> Reader: ...


@runtime_checkable
class Bounded(Protocol):
    """What a source may offer besides: to stop at what is there now (Spark's ``availableNow``)."""

    def until_now(self) -> Source:
        """The same source, closed to whatever comes from now on: ``latest`` never goes past it.

        ``latest`` of it, asked again from where it led, comes to an end: it returns its ``start``.
        Also from a ``start`` that an earlier process was given, before this call or after.
        """
        ...


@runtime_checkable
class Forgetful(Protocol):
    """What a source may offer besides: to forget how to plan what is committed."""

    def committed(self, end: Offsets) -> None:
        """All up to ``end`` is committed: the source may forget how to plan what lies before it."""
        ...


@runtime_checkable
class Endless(Forgetful, Protocol):
    """What a source may offer besides: to forget, where readers without an end keep the positions."""

    def passed(self, left: Sequence[Split]) -> Offsets | None:
        """The place that all of it has got to.

        Args:
            left: the positions of all splits that are not finished, as one snapshot holds them.

        Returns:
            None where that tells no place: some splits are missing, or have an end.
        """
        ...


@runtime_checkable
class Growing(Protocol):
    """What a source may offer besides: to find the parts that came to it, where readers have no end."""

    def resumed(self, left: Sequence[Split]) -> Sequence[Split]:
        """What to read from now on: what is left, and all that the source did not have before.

        Args:
            left: the positions of all splits that are not finished, as one snapshot holds them.

        Raises:
            ConfigError: they have an end, or are finished: it was another reading.
            ReplayMismatchError: what is left is not what it was, or not this source's any more.
        """
        ...


@runtime_checkable
class Portioned(Protocol):
    """What a reader may offer besides: small batches.

    A position inside of a batch is kept as a number of rows to skip. A reader that may find fewer rows
    there when it reads again (a compacted topic does) must offer it: then there is no such position.
    """

    def at_most(self, rows: int) -> None:
        """No batch that is read from now on has more rows."""
        ...


@runtime_checkable
class Checking(Protocol):
    """What a reader may offer besides: to look again, before a snapshot keeps its place."""

    def check(self) -> None:
        """All that was read until now was of what the split names.

        Raises:
            ReplayMismatchError: another thing had taken its name meanwhile; nothing that was read since
                the last check may count.
            UnavailableError: the source does not tell now.
        """
        ...


@runtime_checkable
class Patient(Protocol):
    """What a source may offer besides: to say how long its system is waited for."""

    @property
    def patience(self) -> Patience:
        """With the system, which it names."""
        ...


@runtime_checkable
class Watched(Protocol):
    """What a source may offer besides: to tell how far its data goes, for people to look at."""

    def seen(self) -> Offsets | None:
        """How far the last ``latest`` saw, whatever its limit; must cost nothing, and plans nothing."""
        ...
