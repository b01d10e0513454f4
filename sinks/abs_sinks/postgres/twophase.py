"""Protocol 2pc: one transaction per task, left prepared on the server."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from psycopg import Connection, sql

from abs_clients.postgres.connection import or_close
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased, pool
from abs_core.aborting import abort_each
from abs_core.contracts import Committer, Task
from abs_core.errors import AbsError
from abs_core.lookback import LookedBack, Past
from abs_core.model import (
    Committable,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_core.patience.slow_writes import SlowWriteReporter
from abs_sinks.deadletters.letter import DeadLetter
from abs_sinks.deadletters.writer import Bury
from abs_sinks.postgres import letter_table, lookback
from abs_sinks.postgres.apply.target import (
    ResolvedTable,
    SinkTable,
    altered,
    noticing_changes,
)
from abs_sinks.postgres.copyin import Copy, CopyWriter
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import (
    OR_WAL,
    PreparedTransactions,
    check_proof_is_here,
    prepare,
    proof_noted,
)

MANY_HANDLES = 8
"""Number of handles from which several connections commit them."""

COMMIT_SESSIONS = 4

log = logging.getLogger(__name__)


class TwoPhaseWriter(CopyWriter):
    """COPY into the table, a marker row and PREPARE TRANSACTION, in one transaction.

    It waits at most ``locktimeout`` for a lock: an orphan of an earlier attempt can hold one until the
    next run sweeps it.

    Args:
        elsewhere: whether the register is elsewhere than the markers.
    """

    def __init__(self, table: SinkTable, task: Task, *, elsewhere: bool = False) -> None:
        super().__init__(table, task)
        self._extra = proof_noted(self._options.stateschema if elsewhere else None)

    def _begin(self) -> Copy:
        table, target, connection = self.table, self.table.altered(), self._connection
        if connection is None:
            connection = pool(self._options.server).take(self._tag)
            with or_close(connection):
                self._options.state.ensure(connection)
                begin_on_planned_shape(connection, table, target)
        else:
            with or_close(connection):
                hold_planned_shape(connection, table, target)
        return self._copying(connection, target)

    def _bury(
        self, connection: Connection[Any], target: ResolvedTable, letters: Sequence[DeadLetter]
    ) -> None:
        # Rows are held: ``table`` can be that of the next ones.
        options = (self._into or self.table).options
        letter_table.write(connection, options, target.plan, self._task.handle, letters)

    def _end(self, connection: Connection[Any], made: Committable) -> None:
        marking = PreparedTransactions(self._options).marking(made)
        prepare(self._options, connection, made.handle, marking, OR_WAL)


class GroupTwoPhaseWriter:
    """A ``GroupWriter``: a ``TwoPhaseWriter`` for several sinks' tables, in one transaction.

    Foreign keys of later rows see earlier rows.
    """

    def __init__(self, tables: Mapping[int, SinkTable], task: Task) -> None:
        first = next(iter(tables.values()))
        self._writer = TwoPhaseWriter(first, task, elsewhere=True)
        self._told = SlowWriteReporter(self._writer, first.options.patience, task)
        self._tables = tables

    def bury_in(self, sink: int, elsewhere: Bury) -> None:
        """As ``deadletters.writer.GivingWriter``, for one of the sinks."""
        self._writer.bury_in(elsewhere, sink)

    def write(self, sink: int, batch: pa.RecordBatch) -> None:
        # The writer asks for both with each batch: another table ends the COPY before, and begins one.
        self._writer.table, self._writer.number = self._tables[sink], sink
        self._told.write(batch)

    def pre_commit(self) -> Committable | None:
        return self._told.pre_commit()

    def abort(self) -> None:
        self._told.abort()


class TwoPhaseCommitter(Committer):
    """A ``Committer`` for prepared transactions."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._prepared = PreparedTransactions(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        with leased(self._options.server, doing="inspecting handles") as connection:
            return self._prepared.inspect(connection, [c.handle for c in committables])

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        done = self._commit_all([c.handle for c in committables])
        # Unknown in this schema is no loss while another one has the marker (I7).
        check_proof_is_here(self._options.stateschema, committables, done)
        return done

    def _commit_all(self, prepared: Sequence[HandleName]) -> dict[HandleName, Outcome]:
        if len(prepared) < MANY_HANDLES:
            return self._commit(prepared)
        done: dict[HandleName, Outcome] = {}
        # Each commit waits for the disk; the server flushes several sessions' commits together.
        with ThreadPoolExecutor(COMMIT_SESSIONS) as pool:
            shares = [prepared[n::COMMIT_SESSIONS] for n in range(COMMIT_SESSIONS)]
            for outcomes in pool.map(self._commit, shares):
                done |= outcomes
        return done

    def abort(self, handles: Sequence[HandleName]) -> None:
        with leased(self._options.server) as connection:
            with translate_errors("looking for handles to abort"):
                mine = self._prepared.existing(connection, handles)

            def abort(handle: HandleName) -> None:
                with translate_errors(f"aborting {handle}"):
                    self._prepared.abort(connection, handle)

            abort_each([handle for handle in handles if handle in mine], abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        with leased(self._options.server, doing="listing what is in doubt") as connection:
            return self._prepared.in_doubt(connection, job)

    def forget(self, state: JobState) -> None:
        """Delete markers, also those of ``wal``."""
        try:
            with leased(self._options.server, doing="deleting markers") as connection:
                # The last epoch's markers stay: they tell the next start that no row went back.
                self._prepared.forget(connection, state, lookback.kept(state))
        except AbsError as error:
            # They are deleted with the next epoch's.
            log.debug("markers of job %s stay for now: %s", state.job, error)

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        return lookback.shown(committables, self._options)

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        with leased(self._options.server, doing="looking for markers") as connection:
            return lookback.look_back(connection, self._options.stateschema, past)

    def _commit(self, handles: Sequence[HandleName]) -> dict[HandleName, Outcome]:
        with leased(self._options.server, doing="committing prepared transactions") as connection:
            return self._prepared.commit(connection, handles)


def begin_on_planned_shape(
    connection: Connection[Any], table: SinkTable, target: ResolvedTable
) -> None:
    """Begin a transaction that locks the table in the planned shape; one round trip.

    Raises:
        SchemaError: the table was altered since the plan.
        ContentionError: a lock on the table is held for longer than ``locktimeout``.
    """
    timeout = sql.SQL("SET LOCAL lock_timeout = {}").format(round(table.options.locktimeout * 1000))
    # What a constraint refuses becomes a dead letter only before PREPARE.
    checked = "DEFERRED" if table.options.letters is None else "IMMEDIATE"
    deferred = sql.SQL("SET CONSTRAINTS ALL {}").format(sql.SQL(checked))
    hold_planned_shape(connection, table, target, sql.SQL("BEGIN"), timeout, deferred)


def hold_planned_shape(
    connection: Connection[Any], table: SinkTable, target: ResolvedTable, *before: sql.Composable
) -> None:
    """Lock one more table in its planned shape, after these statements; one round trip.

    Raises:
        SchemaError, ContentionError: as ``begin_on_planned_shape``.
    """
    lock = sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(target.table.identifier)
    # The lock comes before the look: nobody can alter the columns from then on.
    statements = sql.SQL("; ").join([*before, lock, target.plan.shape_query()])
    with translate_errors(f"beginning to write to table {target.table.label}"):
        with noticing_changes(table.options, target.plan):
            cursor = connection.execute(statements)
        while cursor.nextset():
            pass
        shape = cursor.fetchone()
    if shape != (target.shape,):
        raise altered(table.options, target.plan)
