"""Protocol 2pc: one transaction per task, left prepared on the server."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection, sql

from abs_clients.postgres.connection import Tag, or_close
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import MetadataSchema
from abs_clients.postgres.pool import pool
from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable
from abs_sinks.postgres.copyin import CopyIn
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import PreparedTransactions
from abs_sinks.postgres.preparing import OR_WAL, prepare
from abs_sinks.postgres.target import Target, altered, forget, resolve


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
        marking = PreparedTransactions(self._options).marking(committable)
        prepare(self._options, copy.connection, self._handle, marking, OR_WAL)
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
