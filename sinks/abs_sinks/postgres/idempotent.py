"""Protocol idempotent: the task upserts its rows itself, if its epoch may still be written.

It copies the rows to a temporary table. Then one statement locks the register's row FOR SHARE if this
generation may write this epoch, and upserts; the COMMIT is in the same message. So a stopped client
does not hold the lock, and a late loser cannot overwrite a newer epoch: after the register has changed
the statement finds no row to lock, and while it is locked the register cannot change.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import Connection, Cursor, sql
from psycopg.pq import TransactionStatus

from abs_clients.postgres.connection import or_close
from abs_clients.postgres.errors import by_data, to_abs_error, translate_errors
from abs_clients.postgres.name import columns_of
from abs_clients.postgres.pool import pool
from abs_core import protocol
from abs_core.births import rules as births
from abs_core.codec import state_from_text
from abs_core.contracts import Conflict, Task, Version
from abs_core.deadletters import MAX_REFUSALS, counts_of, unsettled
from abs_core.errors import SourceWentBackError
from abs_core.model import Committable, JobState, Shown
from abs_core.protocol import Refused
from abs_core.routing import NothingToCommit
from abs_sinks.deadletters.letter import DeadLetter
from abs_sinks.postgres import letter_table, lookback
from abs_sinks.postgres.apply.message import Message
from abs_sinks.postgres.apply.rows_sql import (
    duplicate_key,
    union_of,
)
from abs_sinks.postgres.apply.statements import CHECKED, DEFERRED, naming_constraint, naming_option
from abs_sinks.postgres.apply.target import (
    ResolvedTable,
    SinkTable,
    SinkTables,
    altered,
    noticing_changes,
)
from abs_sinks.postgres.copyin import Copy, CopyWriter
from abs_sinks.postgres.epoch_transaction import EpochTransaction
from abs_sinks.postgres.letters.refused_rows import mark
from abs_sinks.postgres.letters.refused_staged import refused_of
from abs_sinks.postgres.letters.trials import StagedShare
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.staging import Staging, columns_of_staging, good

DEADLOCK_TRIES = 5

_STAGE = "BEGIN; create temporary table if not exists {} ({}) on commit delete rows"

_MAY_WRITE = """
select from {register}
 where job = {job} and state ->> 'register' = {id}
   and (state ->> 'generation')::bigint = {generation}
   and coalesce((state ->> 'frontier')::bigint, -1) < {epoch}
   and not exists (select from jsonb_array_elements(state -> 'open') o
                    where o ->> 'lineage' = state ->> 'lineage'
                      and (o ->> 'epoch')::bigint >= {epoch})
   and not exists (select from jsonb_array_elements(state -> 'abandoned') a
                    where a::bigint <= {epoch})
"""

_MAY = "with may as materialized ({} and ({}) = {} for share)"

_PICKED = "create temporary table if not exists {} on commit delete rows as {} with no data"


class IdempotentWriter(CopyWriter):
    """Rows are visible when ``pre_commit`` returns; a replay sets them to the same values.

    The register must be in the same database (``stateschema``).
    """

    def __init__(self, table: SinkTable, task: Task) -> None:
        super().__init__(table, task)
        self._register = self._options.state.table("register")
        self._target: ResolvedTable | None = None

    def _end(self, connection: Connection[Any], made: Committable) -> None:
        """Upsert, if the epoch may be written; the committable is evidence only.

        For a finished epoch nothing is changed, and the committable is discarded.

        Raises:
            FencedError: a newer run has taken over; nothing was changed.
            AbandonedError: the epoch was given up; nothing was changed.
            DataError: the task's rows hold a key twice, or changes that cannot be applied.
        """
        assert self._target is not None
        doing = f"upserting rows into table {self._target.table.label}"
        naming = naming_option(self._options)
        constraint = naming_constraint(self._target)
        with naming, constraint, or_close(connection), translate_errors(doing):
            changed = self._apply(connection, self._target)
            if changed < made.rows - self._dead:
                # The count does not tell a refusal from rows that change nothing; the register does.
                self._check_may_write(connection, self._target)

    def _begin(self) -> Copy:
        self._target = self.table.altered()
        staged = _staged(self._options, self._target)
        connection = pool(self._options.server).take(self._tag)
        with or_close(connection), translate_errors("creating a temporary table"):
            columns = columns_of_staging(self._options, self._target.plan)
            connection.execute(sql.SQL(_STAGE).format(staged, columns))
            if (picking := self._target.write.picking(self._good(self._target))) is not None:
                connection.execute(sql.SQL(_PICKED).format(_picked(picking), picking))
        return self._copying(connection, self._target, staged)

    def _bury(
        self, connection: Connection[Any], target: ResolvedTable, letters: Sequence[DeadLetter]
    ) -> None:
        letter_table.stage(connection, _staged(self._options, target), letters)

    @property
    def _dead(self) -> int:
        return sum(letters.count.dead for letters in self._letters.values())

    def _keeping(self, target: ResolvedTable) -> list[sql.Composable]:
        """Keep the dead letters in a table of the handle, for the transaction that decides."""
        if not self._dead:
            return []
        staging, handle = Staging(self._options), self._task.handle
        keep = sql.SQL("insert into {} ({columns}) select {columns} from {} where {}").format(
            staging.table(handle),
            _staged(self._options, target),
            letter_table.IS_DEAD,
            columns=columns_of(letter_table.STAGED),
        )
        return [staging.creating(handle, target.plan, logged=True), keep]

    def _mark_refused(self, connection: Connection[Any], target: ResolvedTable) -> None:
        """Mark the rows that the table refuses; the transaction is back before its first upsert."""
        staged, options = _staged(self._options, target), self._options
        connection.execute("rollback to savepoint staged")
        share = StagedShare(options, target, (staged,), self._rows)
        naming = partial(Staging(options).winners, self._task.handle)
        (refused,) = refused_of(connection, [share], naming)
        connection.execute("rollback to savepoint staged; release savepoint staged")
        self._letters[self.number].add(dead=mark(connection, staged, refused))

    def _good(self, target: ResolvedTable) -> sql.Composed:
        """The query of the rows that are not dead."""
        staged = _staged(self._options, target)
        return union_of(target.plan, [staged], good(self._options))

    def _apply(self, connection: Connection[Any], target: ResolvedTable) -> int:
        """Apply the rows and COMMIT, if the epoch may be written; returns how many.

        All tasks lock rows in key order, so only other writers can cause a deadlock. Of changes, one
        with a problem keeps the statements from changing anything, so the client need not be asked in
        between, and can stop without holding a lock.
        """
        plan, write, rows = target.plan, target.write, self._good(target)
        # Without a row of ``may`` nothing is picked and nothing changed.
        may = sql.SQL(_MAY).format(
            may_write(self._register, self._task), plan.shape_query(), target.shape
        )
        keeps = self._options.letters is not None
        # With dead letters a problem is no error, and the transaction goes on.
        asks = keeps and write.picks
        end = [CHECKED] if asks else [CHECKED, sql.SQL("COMMIT")]
        statements = [*write.apply_if(may, rows, _picked(write.picking(rows))), *end]
        why = ""
        for _ in range(MAX_REFUSALS):
            message = Message(sql.SQL("savepoint staged"), *self._keeping(target), DEFERRED)
            message.wait(write.lock())
            try:
                cursor = self._execute(connection, message.text(statements), target)
                changed, problem, *_ = message.results(cursor, statements)
            except psycopg.errors.CardinalityViolation as error:
                connection.execute("rollback to savepoint staged")
                raise duplicate_key(connection, plan, target.key, rows) from error
            except psycopg.Error as error:
                if not keeps or not by_data(error):
                    raise
                self._mark_refused(connection, target)
                why = to_abs_error(error, "applying rows").what
                continue
            wrong = write.error_of(problem.row)
            if wrong is None:
                if asks:
                    connection.execute("COMMIT")
                return changed.affected
            # A source that went back is no fault of a row: a person must decide, not dead letters.
            if not keeps or isinstance(wrong, SourceWentBackError):
                raise wrong
            self._mark_refused(connection, target)
            why = wrong.what
        raise unsettled(self._task.job, self._task.epoch, why)

    def _execute(
        self, connection: Connection[Any], statements: sql.Composed, target: ResolvedTable
    ) -> Cursor[Any]:
        """Execute statements that begin with the savepoint; again after a deadlock."""
        for _ in range(DEADLOCK_TRIES - 1):
            try:
                with noticing_changes(self._options, target.plan):
                    return connection.execute(statements)
            except psycopg.errors.DeadlockDetected:
                connection.execute("rollback to savepoint staged")
        with noticing_changes(self._options, target.plan):
            return connection.execute(statements)

    def _check_may_write(self, connection: Connection[Any], target: ResolvedTable) -> None:
        """Check the register after fewer rows changed than sent; orderby or a trigger may be why."""
        assert connection.info.transaction_status == TransactionStatus.IDLE
        if connection.execute(target.plan.shape_query()).fetchone() != (target.shape,):
            raise altered(self._options, target.plan)
        task = self._task
        query = sql.SQL("select state::text from {} where job = {}")
        row = connection.execute(query.format(self._register, task.job)).fetchone()
        state = None if row is None else state_from_text(row[0], f"job {task.job}")
        if state is None or state.register != task.register:
            place = self._register.as_string()
            raise births.lost_error(task.job, "was deleted while the job runs", place)
        # Gaps were checked when the task began.
        planned = protocol.plan(state, task.generation, task.epoch, gaps_allowed=True)
        if isinstance(planned, Refused):
            raise planned.error


class IdempotentCoCommitter(NothingToCommit):
    """Co-commits: it changes the register, and moves staged dead letters."""

    co_commits = True

    def __init__(self, tables: SinkTables) -> None:
        self._tables = tables

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        # Their rows are there; what they have staged are dead letters.
        buried = [c for c in committables if any(count.dead for count in counts_of([c]))]
        return EpochTransaction(self._tables).co_commit([], expected, state, buried)

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``."""
        return lookback.shown(committables, self._tables.options)


def may_write(register: sql.Identifier, task: Task) -> sql.Composed:
    """The query that finds the register's row if the task may write its epoch.

    It is ``protocol.plan`` in SQL, for a task that has begun; a test compares the two.
    """
    return sql.SQL(_MAY_WRITE).format(
        register=register,
        job=task.job,
        id=task.register,
        generation=task.generation,
        epoch=task.epoch,
    )


def _staged(options: PostgresOptions, target: ResolvedTable) -> sql.Identifier:
    """The session's temporary table for rows of this shape; sessions last over epochs."""
    shape = columns_of_staging(options, target.plan).as_string()
    return sql.Identifier("pg_temp", f"abs_{blake2b(shape.encode(), digest_size=12).hexdigest()}")


def _picked(picking: sql.Composed | None) -> sql.Identifier:
    """The session's temporary table for the result of this query."""
    text = "" if picking is None else picking.as_string()
    digest = blake2b(text.encode(), digest_size=12).hexdigest()
    return sql.Identifier("pg_temp", f"abs_judged_{digest}")
