"""Sinks of one system whose rows one transaction holds; what an engine asks of them. Protocols only."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from abs_core.contracts import Committer, Task
from abs_core.model import Committable


class GroupWriter(Protocol):
    """Writes one task's share of one epoch to several sinks. Not thread-safe; used once.

    All of its rows have one handle: they become visible together, or not at all. Else as ``Writer``.
    """

    def write(self, sink: int, batch: pa.RecordBatch) -> None:
        """Take a batch for the sink of that number.

        What a sink needs of another one's rows, by a foreign key for instance, it finds if it was
        written before, by this writer.

        Raises:
            DataError: the batch does not fit the target; the writer must then be aborted.
            TargetError: the target refused or went away; the writer must then be aborted.
        """
        ...

    def pre_commit(self) -> Committable | None:
        """Make all rows durable and return their handle; None where no row was written."""
        ...

    def abort(self) -> None:
        """Give up what was not pre-committed, at best effort. Never raises, never undoes a handle."""
        ...


class SinkGroup(Protocol):
    """Sinks of one system, by number, whose rows one transaction of it can hold.

    Either a task has the transaction (``by_task``: ``writer`` takes the place of the sinks' own
    writers), or the commit process has it: the sinks' own writers stay, and ``committer`` applies
    what they pre-committed in one.
    """

    @property
    def by_task(self) -> bool: ...

    def writer(self, task: Task) -> GroupWriter:
        """For the sinks of one task.

        Args:
            task: its partition bears the number of one of the sinks, which the handle will have.
        """
        ...

    def committer(self, *, co_commit: bool) -> Committer:
        """Over the handles of all these sinks.

        Args:
            co_commit: whether the job has no other sinks, and its register lies in their system; where
                the protocol can, it is a ``CoCommitter`` then.
        """
        ...
