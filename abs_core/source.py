"""The interfaces of a replayable source.

Spark reads ranges: ``latest`` bounds an epoch, ``splits`` divides it, and Spark's own log keeps the
offsets. The embedded runtime opens splits without an end and keeps each reader's ``position`` in its
snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from abs_core.patience import Patience

Offsets = str
"""A position in the whole source, as JSON text with sorted keys; equal positions are equal texts."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest size of an epoch; None: no such bound.

    Args:
        bytes: the epoch ends after the file or record that reaches this size.
    """

    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A range of the source for one reader.

    Args:
        source: the topic's partition or the file; for display and for assignment.
        start: first position, as JSON text in the source's own format.
        end: where to stop; None: the reader waits for new data.
    """

    source: str
    start: str
    end: str | None


class Reader(Protocol):
    """Reads one split. Not thread-safe."""

    @property
    def position(self) -> Split:
        """The part of the split that is not yet returned; a snapshot keeps it.

        Opened again, it yields exactly the remaining rows. Valid between any two calls of ``read``.
        """
        ...

    @property
    def finished(self) -> bool:
        """Whether the end of the split is reached; always false for a split without an end."""
        ...

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        """The next batch; None if the split is finished or no data came in time.

        Raises:
            ReplayMismatchError: data to be read again is gone or has changed.
            UnavailableError: the source cannot be reached now.
            RefusedError: the source refuses permanently.
        """
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """Replayable data. Cheap to build; can be pickled.

    Reading the same range twice yields the same rows, in the same order within a split, or raises
    ``ReplayMismatchError``.
    """

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch; may send a request to the source once."""
        ...

    def initial(self) -> Offsets:
        """The first offsets of a new job; called once in a job's life."""
        ...

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        """The last position that can be read now, within the limit; ``start`` if there is no new data.

        Raises:
            ReplayMismatchError: ``start`` is no longer a position in this source (a topic was
                truncated or recreated, a file has changed).
        """
        ...

    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        """Divide the range between two positions; without an end, the splits have no end."""
        ...

    def open(self, split: Split) -> Reader: ...


@runtime_checkable
class Bounded(Protocol):
    """Optional interface of a source: stop at the present data (Spark's ``availableNow``)."""

    def until_now(self) -> Source:
        """The same source without data that arrives from now on.

        Repeated calls of ``latest``, each from the previous result, end: it returns its ``start``. This
        also holds for a ``start`` that an earlier process was given.
        """
        ...


@runtime_checkable
class SupportsTrim(Protocol):
    """Optional interface of a source: drop planning data of committed ranges."""

    def committed(self, end: Offsets) -> None:
        """All data up to ``end`` is committed; the source may drop its planning data before ``end``."""
        ...


@runtime_checkable
class Endless(SupportsTrim, Protocol):
    """``SupportsTrim`` for readers without an end, which keep the positions themselves."""

    def passed(self, left: Sequence[Split]) -> Offsets | None:
        """The position that all splits have passed; None if splits are missing or have an end.

        Args:
            left: the positions of all unfinished splits of one snapshot.
        """
        ...


@runtime_checkable
class Growing(Protocol):
    """Optional interface of a source: find new splits after a restart, for readers without an end."""

    def resumed(self, left: Sequence[Split]) -> Sequence[Split]:
        """The splits to read from now on: the unfinished ones and the new ones.

        Args:
            left: the positions of all unfinished splits of one snapshot.

        Raises:
            ConfigError: they have an end or are finished, so they are of a bounded read.
            ReplayMismatchError: their data has changed, or is no longer in this source.
        """
        ...


@runtime_checkable
class SupportsMaxRows(Protocol):
    """Optional interface of a reader: limit the size of batches.

    A position inside a batch is stored as a number of rows to skip. A reader that may find fewer rows
    on a replay (as in a compacted topic) must offer this, so that there are no such positions.
    """

    def at_most(self, rows: int) -> None:
        """Limit every later batch to this number of rows."""
        ...


@runtime_checkable
class SupportsVerify(Protocol):
    """Optional interface of a reader: verify the source before a snapshot stores a position."""

    def check(self) -> None:
        """Check that all rows read so far came from the object that the split names.

        Raises:
            ReplayMismatchError: another object had taken its name; rows read since the last check
                must not be used.
            UnavailableError: the source does not answer now.
        """
        ...


@runtime_checkable
class Patient(Protocol):
    """Optional interface of a source: how long to wait for its system."""

    @property
    def patience(self) -> Patience:
        """The patience with this source's system, including the system's name."""
        ...


@runtime_checkable
class ReportsEnd(Protocol):
    """Optional interface of a source: report the end of its data, for display."""

    def seen(self) -> Offsets | None:
        """The end of the data at the last ``latest``, regardless of its limit; sends no request."""
        ...
