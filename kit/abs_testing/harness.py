"""The interfaces by which the checks drive and inspect a sink or a source; authors implement them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import pyarrow as pa

from abs_core.contracts import Sink
from abs_core.model import HandleName
from abs_core.source import Limit, Source

Row = tuple[int, str]
"""One row of every check's target: ``id`` (the key under ``upsert``) and ``value``."""

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("value", pa.string())])


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """The rows as a batch of ``SCHEMA``."""
    ids = pa.array([row[0] for row in rows], pa.int64())
    values = pa.array([row[1] for row in rows], pa.string())
    return pa.record_batch([ids, values], schema=SCHEMA)


class Harness(Protocol):
    """One empty target with columns ``id`` (64-bit integer) and ``value`` (text), as a test sees it."""

    @property
    def own_register(self) -> bool:
        """Whether the register is in the sink's own system (``Sink.register``).

        False: the checks bring a register of their own, as for an epoch over several sinks; a
        committer that co-commits then commits handle by handle.
        """
        ...

    @property
    def new_sink(self) -> Callable[[], Sink]:
        """Builds a sink on this target, as a new process would.

        For the crash checks it must be picklable (a ``functools.partial`` of a function of a module).
        """
        ...

    def read(self) -> Iterable[Row]:
        """Every row that a reader sees with the settings that the guarantee requires."""
        ...

    def leftovers(self, job: str) -> Sequence[str]:
        """Everything that the target's system holds for this job key besides rows and register.

        Prepared transactions, staged rows, markers, locks, open uploads: read from the system itself,
        not through the sink. Empty once every epoch is finished and swept.
        """
        ...


@runtime_checkable
class Holding(Protocol):
    """A harness that can make a handle impossible to abort."""

    def held(self, handle: HandleName) -> AbstractContextManager[None]:
        """While inside, the target's system refuses to abort this handle, and no other one.

        As where it belongs to another role, or to somebody who holds a lock on it.
        """
        ...


@runtime_checkable
class Refusing(Protocol):
    """A harness that can make the target refuse the checks' rows, as its own limits would."""

    def refusing(self) -> AbstractContextManager[None]:
        """While inside, the target takes no value of 40 characters; who has looked does not know."""
        ...


@runtime_checkable
class Restoring(Protocol):
    """A harness that can lose a job's register, as a restored backup or a deleted object does."""

    def saved(self, job: str) -> Callable[[], None]:
        """Save the job's register, or that there is none; the result puts it back to that."""
        ...


@runtime_checkable
class GoingBack(Protocol):
    """A harness that can restore its target, as a backup or a rollback does, without the register.

    One whose sink looks back at starts only says so by an attribute: ``only_at_starts = True``.
    """

    def backup(self) -> Callable[[], None]:
        """Keep the target as it is now; the result puts it back to that, and can be repeated."""
        ...


@runtime_checkable
class Remaking(Protocol):
    """A harness that can delete its target and make it again."""

    def remake(self) -> None:
        """Delete the target with its rows, and make an empty one of the same name."""
        ...


Opener = Callable[[], AbstractContextManager[Harness]]
"""Opens a harness on a target that no other check has used."""


Record = Hashable
"""One row in a form that the harness can compare; no two rows of a harness are equal."""


class SourceHarness(Protocol):
    """One empty place that a source reads, as a test sees it.

    Its sources start at the beginning, and give batches of few rows (five, say), so that a split has
    several batches, and the state between two of them can be checked.
    """

    @property
    def limits(self) -> Sequence[tuple[Limit, int]]:
        """Limits that the source keeps, each with the most rows that an epoch may hold under it.

        Far fewer than forty, so that the rows of a check need several epochs.
        """
        ...

    @property
    def damages(self) -> Mapping[str, Callable[[], None]]:
        """Ways in which the past can change, by name: rows that were added are then gone or others.

        After any of them, a range over all that was added cannot be read as it was.
        """
        ...

    def new_source(self) -> Source:
        """A source on this place, as a new process would build it."""
        ...

    def add(self, rows: int) -> Sequence[Record]:
        """Add so many new rows, readable when it returns; from four on, into at least two splits."""
        ...

    def records(self, batch: pa.RecordBatch) -> Sequence[Record]:
        """The rows of a batch that the source gave, in order."""
        ...


SourceOpener = Callable[[], AbstractContextManager[SourceHarness]]
"""Opens a harness on a place that no other check has used."""
