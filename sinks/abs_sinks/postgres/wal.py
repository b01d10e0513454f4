"""Protocol wal: the task's rows in a staging table of its own, committed and durable, not applied."""

from __future__ import annotations

import pyarrow as pa
from psycopg import sql

from abs_clients.postgres.connection import or_close
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import MetadataSchema
from abs_clients.postgres.pool import pool
from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable
from abs_sinks.postgres.copyin import CopyIn, OneCopyWriter
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.staging import Staging
from abs_sinks.postgres.target import resolve


class StagingWriter(OneCopyWriter):
    """Creates a staging table, copies into it, commits.

    A commit whose reply is lost is not looked for: the attempt's name is its own (I6), so the table
    is swept like any other that no decision names.

    Args:
        logged: whether the rows must survive a crash of the server (see ``staging``).
    """

    def __init__(
        self, options: PostgresOptions, schema: pa.Schema, task: Task, *, logged: bool
    ) -> None:
        super().__init__(options, schema, task)
        self._logged = logged

    def pre_commit(self) -> Committable | None:
        if self._copy is None:
            return None
        copy, self._copy = self._copy, None
        copy.finish()
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        with or_close(copy.connection), translate_errors("committing staged rows"):
            copy.connection.execute("COMMIT")
        pool(self._options.server).give_back(copy.connection)
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return Committable(self._task.handle, copy.rows, copy.digest, (("protocol", "wal"),))

    def _begin(self) -> CopyIn:
        plan = resolve(self._options, self._schema).plan
        staging = Staging(self._options)
        connection = pool(self._options.server).take(self._tag)
        with or_close(connection), translate_errors("creating a staging table"):
            MetadataSchema(self._options.server, self._options.stateschema).ensure(connection)
            creating = staging.creating(self._task.handle, plan, logged=self._logged)
            connection.execute(sql.SQL("; ").join([sql.SQL("BEGIN"), creating]))
        statement = plan.copy_statement(staging.table(self._task.handle))
        return CopyIn(connection, plan, statement, self._options)
