"""Protocol 2pc: one transaction per task, left prepared on the server."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import xxhash
from psycopg import Connection, sql

from abs_clients.postgres.connection import Tag, or_close
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import MetadataSchema
from abs_clients.postgres.pool import leased, pool
from abs_core.aborting import abort_each
from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.errors import AbsError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.patience.told_writer import writing
from abs_sinks.postgres import proof
from abs_sinks.postgres.copyin import CopyIn
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import OR_WAL, PreparedTransactions, prepare
from abs_sinks.postgres.tables import Table
from abs_sinks.postgres.target import Target, altered, noticing_changes

MANY_HANDLES = 8
"""Number of handles from which several connections commit them."""

COMMIT_SESSIONS = 4

log = logging.getLogger(__name__)


class _TaskTransaction:
    """A task's transaction, with a COPY into one table after another."""

    def __init__(self, options: PostgresOptions, task: Task, *, elsewhere: bool) -> None:
        self._options = options
        self._noted = proof.noted(options.stateschema if elsewhere else None)
        self._handle = task.handle
        self._tag = Tag(task.register, task.generation)
        self._connection: Connection[Any] | None = None
        self._copy: CopyIn | None = None
        self._into: Table | None = None
        self._rows = 0
        self._digests: list[str] = []

    def _take(self, table: Table, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        first = self._connection is None
        if self._copy is None or table is not self._into:
            self._copy, self._into = self._begin(table), table
        self._copy.write(batch)
        if first:
            reached(CrashPoint.AFTER_FIRST_BATCH)

    def pre_commit(self) -> Committable | None:
        if self._connection is None:
            return None
        connection, self._connection = self._connection, None
        self._finish_copy()
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        committable = Committable(self._handle, self._rows, self._digest(), self._noted)
        marking = PreparedTransactions(self._options).marking(committable)
        prepare(self._options, connection, self._handle, marking, OR_WAL)
        pool(self._options.server).give_back(connection)
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return committable

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _begin(self, table: Table) -> CopyIn:
        """Begin a COPY into the table, after the end of the one into another table."""
        self._finish_copy()
        target = table.target()
        if self._connection is None:
            connection = pool(self._options.server).take(self._tag)
            with or_close(connection):
                MetadataSchema(self._options.server, self._options.stateschema).ensure(connection)
                begin_on_planned_shape(connection, table, target)
            self._connection = connection
        else:
            with or_close(self._connection):
                hold_planned_shape(self._connection, table, target)
        return CopyIn(self._connection, target.plan, table.options)

    def _finish_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.finish()
            self._rows += copy.rows
            self._digests.append(copy.digest)

    def _digest(self) -> str:
        """A digest of the bytes sent, COPY by COPY."""
        if len(self._digests) == 1:
            return self._digests[0]
        return f"xxh3_128:{xxhash.xxh3_128(' '.join(self._digests).encode()).hexdigest()}"


class TwoPhaseWriter(_TaskTransaction):
    """COPY into the table, a marker row and PREPARE TRANSACTION, in one transaction.

    It begins with the first row. It waits at most ``locktimeout`` for a lock: an orphan of an earlier
    attempt can hold one until the next run sweeps it.

    Args:
        elsewhere: whether the register is elsewhere than the markers.
    """

    def __init__(
        self, options: PostgresOptions, schema: pa.Schema, task: Task, *, elsewhere: bool = False
    ) -> None:
        super().__init__(options, task, elsewhere=elsewhere)
        self._table = Table(options, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._take(self._table, batch)


class GroupTwoPhaseWriter(_TaskTransaction):
    """A ``GroupWriter``: as ``TwoPhaseWriter``, for several sinks' tables in one transaction.

    Foreign keys of later rows see earlier rows.
    """

    def __init__(self, tables: Mapping[int, Table], task: Task) -> None:
        options = next(iter(tables.values())).options
        super().__init__(options, task, elsewhere=True)
        self._tables = tables
        self._patience = replace(options.patience, job=task.job)

    def write(self, sink: int, batch: pa.RecordBatch) -> None:
        with writing(self._patience):
            self._take(self._tables[sink], batch)

    def pre_commit(self) -> Committable | None:
        with writing(self._patience):
            return super().pre_commit()


class TwoPhaseCommitter:
    """A ``Committer`` for prepared transactions."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._prepared = PreparedTransactions(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        with leased(self._options.server, doing="inspecting handles") as connection:
            return self._prepared.inspect(connection, [c.handle for c in committables])

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        done = self._commit_all([c.handle for c in committables])
        proof.check_proof_is_here(self._options.stateschema, committables, done)
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
                self._prepared.forget(connection, state)
        except AbsError as error:
            # They are deleted with the next epoch's.
            log.debug("markers of job %s stay for now: %s", state.job, error)

    def _commit(self, handles: Sequence[HandleName]) -> dict[HandleName, Outcome]:
        with leased(self._options.server, doing="committing prepared transactions") as connection:
            return self._prepared.commit(connection, handles)


def begin_on_planned_shape(connection: Connection[Any], table: Table, target: Target) -> None:
    """Begin a transaction that locks the table in the planned shape; one round trip.

    Raises:
        SchemaError: the table was altered since the plan.
        ContentionError: a lock on the table is held for longer than ``locktimeout``.
    """
    timeout = sql.SQL("SET LOCAL lock_timeout = {}").format(round(table.options.locktimeout * 1000))
    deferred = sql.SQL("SET CONSTRAINTS ALL DEFERRED")
    hold_planned_shape(connection, table, target, sql.SQL("BEGIN"), timeout, deferred)


def hold_planned_shape(
    connection: Connection[Any], table: Table, target: Target, *before: sql.Composable
) -> None:
    """Lock one more table in its planned shape, after these statements; one round trip.

    Raises:
        SchemaError, ContentionError: as ``begin_on_planned_shape``.
    """
    lock = sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(target.table.identifier)
    statements = sql.SQL("; ").join([*before, lock, target.plan.shape_query()])
    with translate_errors(f"beginning to write to table {target.table.label}"):
        with noticing_changes(table.options, target.plan):
            cursor = connection.execute(statements)
        while cursor.nextset():
            pass
        shape = cursor.fetchone()
    if shape != (target.shape,):
        raise altered(table.options, target.plan)
