"""Protocol 2pc: one transaction per task, left prepared on the server."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection, sql

from abs_clients.postgres.connection import Tag, or_close
from abs_clients.postgres.errors import to_abs_error, translate_errors
from abs_clients.postgres.metadata import MetadataSchema
from abs_clients.postgres.pool import leased, pool
from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.errors import (
    AbsError,
    ContentionError,
    PreflightError,
    RefusedError,
    TargetError,
    UnavailableError,
)
from abs_core.model import Committable
from abs_sinks.postgres.copyin import CopyIn
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import PreparedTransactions
from abs_sinks.postgres.target import Target, altered, forget, resolve

RAISE_OR_WAL = (
    "raise max_prepared_transactions above the number of tasks of all jobs and restart the server, "
    "or set protocol=wal, which needs none."
)


class PreparingWriter:
    """COPY into the table, a marker row, PREPARE TRANSACTION: all in one transaction of its own.

    The transaction begins with the first row. Waits at most ``locktimeout`` for a lock: a prepared
    orphan of an earlier attempt can hold one until the next run sweeps it.
    """

    def __init__(self, options: PostgresOptions, schema: pa.Schema, task: Task) -> None:
        self._options = options
        self._schema = schema
        self._handle = task.handle
        self._tag = Tag(task.register, task.generation)
        self._copy: CopyIn | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if self._copy is None:
            self._copy = self._begin()
            self._copy.write(batch)
            reached(CrashPoint.AFTER_FIRST_BATCH)
        else:
            self._copy.write(batch)

    def pre_commit(self) -> Committable | None:
        if self._copy is None:
            return None
        copy, self._copy = self._copy, None
        copy.finish()
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        committable = Committable(self._handle, copy.rows, copy.digest, (("protocol", "2pc"),))
        self._prepare(copy.connection, committable)
        pool(self._options.server).give_back(copy.connection)
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return committable

    def abort(self) -> None:
        if self._copy is not None:
            self._copy.connection.close()

    def _begin(self) -> CopyIn:
        target = resolve(self._options, self._schema)
        connection = pool(self._options.server).take(self._tag)
        with or_close(connection):
            MetadataSchema(self._options.server, self._options.stateschema).ensure(connection)
            begin_on_planned_shape(connection, self._options, self._schema, target)
        return CopyIn(connection, target.plan, target.plan.copy_statement(), self._options)

    def _prepare(self, connection: Connection[Any], committable: Committable) -> None:
        transactions = PreparedTransactions(self._options)
        statements = sql.SQL("; ").join(
            [
                transactions.marking(committable),
                sql.SQL("PREPARE TRANSACTION {}").format(str(self._handle)),
            ]
        )
        try:
            result = connection.execute(statements)
        except psycopg.Error as error:
            connection.close()
            if _may_have_happened(error):
                self._look_for_it(transactions, error)
                return
            raise _not_prepared(error, str(self._handle)) from error
        while result.nextset():
            pass
        if result.statusmessage != "PREPARE TRANSACTION":
            # A transaction that had failed before answers ROLLBACK, and no error.
            connection.close()
            raise TargetError(
                f"PREPARE TRANSACTION was answered with {result.statusmessage}.",
                handle=str(self._handle),
                remedy="this is a defect of the sink: please report it.",
            )

    def _look_for_it(self, transactions: PreparedTransactions, lost: psycopg.Error) -> None:
        """The reply is lost: prepared or not? The name is this attempt's alone (I6)."""

        def look() -> bool:
            with (
                leased(self._options.server) as connection,
                translate_errors("looking for a prepared transaction"),
            ):
                return transactions.is_prepared(connection, self._handle)

        try:
            if self._options.patience.retry(look):
                return
        except AbsError as error:
            raise UnavailableError(
                "The server went away at PREPARE TRANSACTION, and does not answer now.",
                handle=str(self._handle),
                remedy="the next run sweeps the transaction, if it was prepared.",
            ) from error
        raise UnavailableError(
            "The connection broke at PREPARE TRANSACTION; the server does not have it prepared.",
            handle=str(self._handle),
            remedy="let the task be tried again; if the server prepares it yet, it is swept.",
        ) from to_abs_error(lost, "preparing a transaction")


def begin_on_planned_shape(
    connection: Connection[Any], options: PostgresOptions, schema: pa.Schema, target: Target
) -> None:
    """Begin a transaction that holds the table in the shape of the plan; one round trip.

    Raises:
        SchemaError: the table was altered since it was planned.
        ContentionError: something holds a lock on the table, for longer than ``locktimeout``.
    """
    statements = sql.SQL("; ").join(
        [
            sql.SQL("BEGIN"),
            sql.SQL("SET LOCAL lock_timeout = {}").format(round(options.locktimeout * 1000)),
            sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(target.table.identifier),
            target.shape_query(),
        ]
    )
    with translate_errors(f"beginning to write to table {target.table.label}"):
        try:
            cursor = connection.execute(statements)
        except psycopg.errors.UndefinedTable:
            forget(options, schema)
            raise
        while cursor.nextset():
            pass
        shape = cursor.fetchone()
    if shape != (target.shape,):
        raise altered(options, schema, target)


def _may_have_happened(error: psycopg.Error) -> bool:
    """The connection broke, or the server ended the session: PREPARE may have taken effect."""
    state = error.sqlstate
    return state is None or state[:2] in ("08", "57")


def _not_prepared(error: psycopg.Error, handle: str) -> AbsError:
    hint = (error.diag.message_primary or "").rstrip(".")
    if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState):
        return PreflightError(
            "The server has no room for prepared transactions: max_prepared_transactions is 0.",
            handle=handle,
            remedy=RAISE_OR_WAL,
        )
    if isinstance(error, psycopg.errors.OutOfMemory) and "prepared transactions" in hint:
        return ContentionError(
            f"The server has no room for one more prepared transaction: {hint}.",
            handle=handle,
            remedy=f"end those left behind (`abs in-doubt list`); {RAISE_OR_WAL}",
        )
    if isinstance(error, psycopg.errors.FeatureNotSupported):
        return RefusedError(
            f"The transaction cannot be prepared: {hint}. A trigger of the table did that.",
            handle=handle,
            remedy="set protocol=wal, which applies the rows in an ordinary transaction; or drop "
            "the trigger.",
        )
    return to_abs_error(error, "preparing a transaction")
