"""The interfaces of a replayable source.

Spark reads ranges: ``latest`` bounds an epoch, ``splits`` divides it, and Spark's own log keeps the
offsets. The embedded runtime opens splits without an end and keeps each reader's ``position`` in its
snapshots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

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


class Reader(ABC):
    """Reads one split. Not thread-safe."""

    @property
    @abstractmethod
    def position(self) -> Split:
        """The part of the split that is not yet returned; a snapshot keeps it.

        Opened again, it yields exactly the remaining rows. Valid between any two calls of ``read``.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the end of the split is reached; always false for a split without an end."""

    @abstractmethod
    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        """The next batch; None if the split is finished or no data came in time.

        Raises:
            ReplayMismatchError: data to be read again is gone or has changed.
            UnavailableError: the source cannot be reached now.
            RefusedError: the source refuses permanently.
        """

    @abstractmethod
    def close(self) -> None: ...

    def at_most(self, rows: int) -> bool:
        """Limit every later batch to this number of rows; False: its batches stay as they are.

        A position inside a batch is stored as a number of rows to skip. Write it for a reader that may
        find fewer rows on a replay (as in a compacted topic), so that there are no such positions.
        """
        return False

    def check(self) -> None:  # noqa: B027 - most read what nobody can replace
        """Check that all rows read so far came from the object that the split names.

        Called before a snapshot stores a position.

        Raises:
            ReplayMismatchError: another object had taken its name; rows read since the last check
                must not be used.
            UnavailableError: the source does not answer now.
        """


class Source(ABC):
    """Replayable data. Cheap to build; can be pickled.

    Reading the same range twice yields the same rows, in the same order within a split, or raises
    ``ReplayMismatchError``.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of every batch; may send a request to the source once."""

    @abstractmethod
    def initial(self) -> Offsets:
        """The first offsets of a new job; called once in a job's life."""

    @abstractmethod
    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        """The last position that can be read now, within the limit; ``start`` if there is no new data.

        Raises:
            ReplayMismatchError: ``start`` is no longer a position in this source (a topic was
                truncated or recreated, a file has changed).
        """

    @abstractmethod
    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        """Divide the range between two positions; without an end, the splits have no end."""

    @abstractmethod
    def open(self, split: Split) -> Reader: ...

    @property
    def patience(self) -> Patience:
        """How long to wait for progress in a range; without a ``system``, messages name the split."""
        return Patience(300.0)

    def until_now(self) -> Source | None:
        """The same source without data that arrives from now on (Spark's ``availableNow``).

        Repeated calls of ``latest``, each from the previous result, end: it returns its ``start``. This
        also holds for a ``start`` that an earlier process was given. None: the source cannot tell such
        data, and an engine takes all that is there in one epoch.
        """
        return None

    def committed(self, end: Offsets) -> None:  # noqa: B027 - most keep nothing to plan with
        """All data up to ``end`` is committed; the source may drop its planning data before ``end``."""

    def passed(self, left: Sequence[Split]) -> Offsets | None:
        """The position for ``committed`` that all splits without an end have passed.

        None if splits are missing or have an end, or if nothing is to be dropped.

        Args:
            left: the positions of all unfinished splits of one snapshot.
        """
        return None

    def resumed(self, left: Sequence[Split]) -> Sequence[Split]:
        """The splits without an end to read after a restart: the unfinished ones and new ones, if any.

        Args:
            left: the positions of all unfinished splits of one snapshot.

        Raises:
            ConfigError: they have an end or are finished, so they are of a bounded read.
            ReplayMismatchError: their data has changed, or is no longer in this source.
        """
        return left

    def seen(self) -> Offsets | None:
        """The end of the data at the last ``latest``, regardless of its limit; None: unknown.

        For display; sends no request.
        """
        return None
