"""Protocol wal: a task commits its rows to a staging table, and the epoch's commit applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psycopg import Connection, sql

from abs_clients.postgres.connection import or_close
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased, pool
from abs_core.aborting import abort_each
from abs_core.contracts import Committer, Conflict, Task, Version
from abs_core.model import (
    Committable,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_core.routing import none_to_commit
from abs_sinks.deadletters.letter import DeadLetter
from abs_sinks.postgres import letter_table, lookback
from abs_sinks.postgres.apply.target import ResolvedTable, SinkTable, SinkTables, altered
from abs_sinks.postgres.copyin import Copy, CopyWriter
from abs_sinks.postgres.epoch_transaction import EpochTransaction
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.staging import Staging


class WalWriter(CopyWriter):
    """Creates a staging table, copies into it, commits.

    A table whose commit got no reply is swept, as any that no decision names: its name is unique (I6).

    Args:
        logged: whether the rows must survive a crash of the server (see ``staging``).
    """

    def __init__(self, table: SinkTable, task: Task, *, logged: bool) -> None:
        super().__init__(table, task)
        self._logged = logged

    def _begin(self) -> Copy:
        # Logged: the epoch's transaction will be prepared. An ALTER TABLE in it would lock readers
        # out until it is committed, so new columns are added here.
        target = self.table.altered() if self._logged else self.table.target()
        staging = Staging(self._options)
        connection = pool(self._options.server).take(self._tag)
        with or_close(connection), translate_errors("creating a staging table"):
            self._options.state.ensure(connection)
            creating = staging.creating(self._task.handle, target.plan, logged=self._logged)
            statements = [sql.SQL("BEGIN"), creating, target.plan.shape_query()]
            cursor = connection.execute(sql.SQL("; ").join(statements))
            while cursor.nextset():
                pass
            if cursor.fetchone() != (target.shape,):  # the handle would tell another table
                raise altered(self._options, target.plan)
        return self._copying(connection, target, staging.table(self._task.handle))

    def _bury(
        self, connection: Connection[Any], target: ResolvedTable, letters: Sequence[DeadLetter]
    ) -> None:
        letter_table.stage(connection, Staging(self._options).table(self._task.handle), letters)

    def _end(self, connection: Connection[Any], made: Committable) -> None:
        with or_close(connection), translate_errors("committing staged rows"):
            connection.execute("COMMIT")


class WalCommitter(Committer):
    """A ``Committer`` for staging tables, which no decision names: it finds and aborts them."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._staging = Staging(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        with leased(self._options.server, doing="inspecting handles") as connection:
            there = self._staging.existing(connection, [c.handle for c in committables])
        return {
            c.handle: Inspection(Outcome.PREPARED if c.handle in there else Outcome.UNKNOWN)
            for c in committables
        }

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        return none_to_commit(committables, _APPLIED_BEFORE, _REMEDY)

    def abort(self, handles: Sequence[HandleName]) -> None:
        with leased(self._options.server) as connection:
            with translate_errors("looking for handles to abort"):
                # A decided epoch's staging tables are dropped by the transaction composed of them.
                mine = self._staging.existing(connection, handles)
                mine -= self._staging.held(connection, handles)

            def abort(handle: HandleName) -> None:
                with translate_errors(f"aborting {handle}"):
                    self._staging.abort(connection, handle)

            abort_each([handle for handle in handles if handle in mine], abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        with leased(self._options.server, doing="listing what is in doubt") as connection:
            return self._staging.in_doubt(connection, job)

    def forget(self, state: JobState) -> None:
        """Nothing: its markers are deleted with those of ``2pc``."""


class WalComposer(WalCommitter):
    """For a register elsewhere: it composes a prepared transaction, as ``2pc`` has."""

    composes = True

    def __init__(self, tables: SinkTables) -> None:
        super().__init__(tables.options)
        self._tables = tables
        self._counted: dict[HandleName, Committable] = {}

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """See ``EpochTransaction``."""
        if not committables:
            return []
        # A call that comes again finds what is prepared by the counts that are in its name.
        staged = [self._counted.get(c.handle, c) for c in committables]
        self._counted = {c.handle: c for c in staged}
        return [EpochTransaction(self._tables).compose(staged, self._counted)]


class WalCoCommitter(WalCommitter):
    """A ``Committer`` that co-commits, for a register in the same database.

    Args:
        besides: see ``EpochTransaction``.
    """

    co_commits = True

    def __init__(
        self, tables: SinkTables, besides: Callable[[Connection[Any]], None] = lambda _: None
    ) -> None:
        super().__init__(tables.options)
        self._tables = tables
        self._besides = besides

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``EpochTransaction``."""
        transaction = EpochTransaction(self._tables, self._besides)
        return transaction.co_commit(committables, expected, state)

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``."""
        return lookback.shown(committables, self._options)


_APPLIED_BEFORE = (
    "Rows that protocol=wal has staged in PostgreSQL are applied in the transaction that decides them, "
    "or in one that is prepared before: no decision names them."
)
_REMEDY = (
    "build the sink with co_commit=False if its register is not in this database; the epoch is written "
    "again."
)
