"""Protocol idempotent: the task upserts its rows itself, as long as its epoch is not over.

The rows are copied to a temporary table first. Then one statement on the server takes the register's
row FOR SHARE, asks it whether this generation may still write this epoch, and upserts; its COMMIT is
sent along with it. So a client that is stopped anywhere holds the register's row against nobody for
longer than the server works, and a late loser cannot overwrite a newer epoch: once the register has
moved on the statement finds no row to share, and until it has, nobody else can move it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection, sql
from psycopg.pq import TransactionStatus

from abs_clients.postgres.connection import or_close
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import MetadataSchema
from abs_clients.postgres.pool import pool
from abs_core import protocol
from abs_core.births import rules as births
from abs_core.codec import state_from_text
from abs_core.contracts import Conflict, Task, Version
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.protocol import Refused
from abs_sinks.postgres.apply import (
    columns_of,
    duplicate_key,
    inserting,
    latest_of,
    staging_columns,
    union_of,
)
from abs_sinks.postgres.copyin import CopyIn, OneCopyWriter
from abs_sinks.postgres.epoch_transaction import EpochTransaction
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.plan import CopyPlan
from abs_sinks.postgres.tables import Tables
from abs_sinks.postgres.target import Target, altered, forget, missing_column, resolve

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

_MAY = "with may as materialized ({} and ({}) = {} for share) {}; COMMIT"


class IdempotentWriter(OneCopyWriter):
    """Rows are visible once ``pre_commit`` has returned; a replay sets them to the same again.

    The register must lie in the same database (``stateschema``).
    """

    def __init__(self, options: PostgresOptions, schema: pa.Schema, task: Task) -> None:
        super().__init__(options, schema, task)
        self._register = MetadataSchema(options.server, options.stateschema).table("register")
        self._apply: sql.Composed | None = None
        self._target: Target | None = None

    def pre_commit(self) -> Committable | None:
        """Upsert, if the epoch is still to be written; evidence of it, not a handle to act on.

        An epoch that is over already leaves the table alone: then what is returned is discarded.

        Raises:
            FencedError: a newer run has taken over; nothing was changed.
            AbandonedError: the epoch was given up; nothing was changed.
            DataError: the task's rows hold a key twice.
        """
        if self._copy is None:
            return None
        copy, self._copy = self._copy, None
        copy.finish()
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        doing = f"upserting rows into table {copy.plan.table.label}"
        with or_close(copy.connection), translate_errors(doing):
            changed = self._upsert(copy.connection, copy.plan)
            if changed < copy.rows:
                self._check_may_write(copy.connection)
        pool(self._options.server).give_back(copy.connection)
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return Committable(self._task.handle, copy.rows, copy.digest, (("protocol", "idempotent"),))

    def _begin(self) -> CopyIn:
        target = resolve(self._options, self._schema)
        plan = target.plan
        staged = _staged(plan)
        source = sql.SQL("select s.* from ({}) s, may order by {}").format(
            latest_of(plan, union_of(plan, [staged]), target.key, target.orderby),
            columns_of(target.key),
        )
        self._target = target
        self._apply = sql.SQL(_MAY).format(
            may_write(self._register, self._task),
            target.shape_query(),
            target.shape,
            inserting(plan, source, target.key),
        )
        connection = pool(self._options.server).take(self._tag)
        with or_close(connection), translate_errors("creating a temporary table"):
            connection.execute(sql.SQL(_STAGE).format(staged, staging_columns(plan)))
        return CopyIn(connection, plan, plan.copy_statement(staged), self._options)

    def _upsert(self, connection: Connection[Any], plan: CopyPlan) -> int:
        """Run the statement and its COMMIT; how many rows it changed.

        Other tasks lock rows in the order of the key too, so a deadlock is another writer's doing.
        """
        assert self._apply is not None
        statements = sql.SQL("savepoint staged; {}").format(self._apply)
        for attempt in range(DEADLOCK_TRIES):
            try:
                cursor = connection.execute(statements)
            except psycopg.errors.DeadlockDetected:
                if attempt == DEADLOCK_TRIES - 1:
                    raise
                connection.execute("rollback to savepoint staged")
            except psycopg.errors.CardinalityViolation:
                connection.execute("rollback to savepoint staged")
                self._raise_duplicate(connection, plan)
                raise
            except (psycopg.errors.DatatypeMismatch, psycopg.errors.UndefinedColumn) as error:
                assert self._target is not None
                raise altered(self._options, self._schema, self._target) from error
            except psycopg.errors.NotNullViolation as error:
                found = missing_column(self._options, plan, error)
                if found is None:
                    raise
                raise found from error
            except psycopg.errors.UndefinedTable:
                forget(self._options, self._schema)
                raise
            else:
                cursor.nextset()
                return cursor.rowcount
        raise AssertionError("unreachable")

    def _raise_duplicate(self, connection: Connection[Any], plan: CopyPlan) -> None:
        assert self._target is not None
        key = self._target.key
        error = duplicate_key(connection, plan, key, union_of(plan, [_staged(plan)]))
        if error is not None:
            raise error

    def _check_may_write(self, connection: Connection[Any]) -> None:
        """Fewer rows changed than were sent: by orderby, by a trigger, or something has moved on."""
        assert connection.info.transaction_status == TransactionStatus.IDLE
        assert self._target is not None
        if connection.execute(self._target.shape_query()).fetchone() != (self._target.shape,):
            raise altered(self._options, self._schema, self._target)
        task = self._task
        query = sql.SQL("select state::text from {} where job = {}")
        row = connection.execute(query.format(self._register, task.job)).fetchone()
        state = None if row is None else state_from_text(row[0], f"job {task.job}")
        if state is None or state.register != task.register:
            place = self._register.as_string()
            raise births.gone(task.job, "was deleted while the job runs", place)
        # Whether there is a gap was asked when the task began.
        planned = protocol.plan(state, task.generation, task.epoch, gaps_allowed=True)
        if isinstance(planned, Refused):
            raise planned.error


class IdempotentCommitter:
    """Protocol idempotent: the rows are in the table before a committable exists."""

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. What a task reports is evidence, as good as prepared."""
        return {c.handle: Inspection(Outcome.PREPARED) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        return {c.handle: Outcome.COMMITTED for c in committables}

    def abort(self, handles: Sequence[HandleName]) -> None:
        """Nothing: a row cannot be taken back; the epoch is written again over it."""

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return []

    def forget(self, state: JobState) -> None:
        """Nothing: there is no marker."""


class IdempotentCoCommitter(IdempotentCommitter):
    """Protocol idempotent, a ``CoCommitter``: the register alone is changed."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        return EpochTransaction(self._tables).persistently([], expected, state)


def may_write(register: sql.Identifier, task: Task) -> sql.Composed:
    """The query that finds the register's row while the task may write its epoch.

    It is ``protocol.plan`` in SQL, for a task that has begun: the two are held against each other by
    a test.
    """
    return sql.SQL(_MAY_WRITE).format(
        register=register,
        job=task.job,
        id=task.register,
        generation=task.generation,
        epoch=task.epoch,
    )


def _staged(plan: CopyPlan) -> sql.Identifier:
    """The session's temporary table for rows of this shape; sessions live through many epochs."""
    shape = staging_columns(plan).as_string()
    return sql.Identifier("pg_temp", f"abs_{blake2b(shape.encode(), digest_size=12).hexdigest()}")
