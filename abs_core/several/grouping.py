"""The interfaces of sinks of one system that share a transaction."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from abs_core.contracts import Committer, Task
from abs_core.model import Committable


class GroupWriter(Protocol):
    """Writes one task's share of one epoch to several sinks. Not thread-safe; used once.

    All of its rows have one handle, so they become visible together. Otherwise as ``Writer``.
    """

    def write(self, sink: int, batch: pa.RecordBatch) -> None:
        """Write a batch to the sink of that number.

        It sees rows that this writer wrote before to other sinks, as foreign keys need.

        Raises:
            DataError: the batch does not fit the target; the writer must then be aborted.
            TargetError: the target refused or went away; the writer must then be aborted.
        """
        ...

    def pre_commit(self) -> Committable | None:
        """Make all rows durable and return their handle; None if no row was written."""
        ...

    def abort(self) -> None:
        """Discard rows that are not pre-committed, at best effort. Never raises or undoes a handle."""
        ...


class SinkGroup(Protocol):
    """Sinks of one system, by number, that can share a transaction.

    Either each task has the transaction (``by_task``: ``writer`` replaces the sinks' own writers), or
    the commit process has it: the sinks keep their writers, and ``committer`` applies all pre-commits
    in one transaction.
    """

    @property
    def by_task(self) -> bool: ...

    def writer(self, task: Task) -> GroupWriter:
        """The writer for all sinks of one task.

        Args:
            task: its partition holds the number of one of the sinks, and so will the handle.
        """
        ...

    def committer(self, *, co_commit: bool) -> Committer:
        """The committer for the handles of all these sinks.

        Args:
            co_commit: the job has no other sinks and its register is in their system; return a
                committer that co-commits if the protocol allows it.
        """
        ...
