"""One COPY, fed with Arrow batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
import xxhash
from psycopg import Connection, Copy, sql
from psycopg.copy import LibpqWriter

from abs_clients.postgres.connection import Tag, or_close
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import pool
from abs_core.contracts import Task
from abs_core.model import PROTOCOL, Committable
from abs_core.stepwise import StepwiseWriter
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.plan import CopyPlan
from abs_sinks.postgres.target import noticing_new_columns


class CopyIn:
    """One COPY FROM STDIN in the connection's transaction.

    An error closes the connection, so that the server rolls back at once. ``into``: see
    ``CopyPlan.copy_statement``.
    """

    def __init__(
        self,
        connection: Connection[Any],
        plan: CopyPlan,
        options: PostgresOptions,
        into: sql.Identifier | None = None,
    ) -> None:
        self.connection = connection
        self.plan = plan
        self.rows = 0
        self._options = options
        self._doing = f"copying rows for table {plan.table.label}"
        self._digest = xxhash.xxh3_128()
        self._encoder = plan.encoder()
        self._stack = ExitStack()
        with self._mapped():
            cursor = connection.cursor()
            copy = cursor.copy(plan.copy_statement(into), writer=_OnlyWhole(cursor))
            self._copy: Copy = self._stack.enter_context(copy)
            self._send(self._encoder.header())

    @property
    def digest(self) -> str:
        """A digest of the bytes sent."""
        return f"xxh3_128:{self._digest.hexdigest()}"

    def write(self, batch: pa.RecordBatch) -> None:
        with self._mapped():
            for start in range(0, batch.num_rows, self._options.batchsize):
                self._send(self._encoder.encode(batch.slice(start, self._options.batchsize)))
        self.rows += batch.num_rows

    def finish(self) -> None:
        """End the COPY, and wait until the server has taken all rows."""
        with self._mapped():
            self._send(self._encoder.finish())
            self._stack.close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        with (
            or_close(self.connection),
            translate_errors(self._doing),
            noticing_new_columns(self._options, self.plan),
        ):
            yield

    def _send(self, data: bytes) -> None:
        self._digest.update(data)
        self._copy.write(data)


class OneCopyWriter(StepwiseWriter):
    """The base of writers with one COPY, begun by the first row."""

    def __init__(self, options: PostgresOptions, schema: pa.Schema, task: Task) -> None:
        super().__init__()
        self._options = options
        self._schema = schema
        self._task = task
        self._tag = Tag(task.register, task.generation)
        self._copy: CopyIn | None = None

    def abort(self) -> None:
        if self._copy is not None:
            self._copy.connection.close()

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._copy is None:
            self._copy = self._begin()
        self._copy.write(batch)

    def _complete(self) -> None:
        assert self._copy is not None
        self._copy.finish()

    def _prepared(self) -> Committable:
        assert self._copy is not None
        copy, self._copy = self._copy, None
        self._end(copy)
        pool(self._options.server).give_back(copy.connection)
        extra = ((PROTOCOL, self._options.protocol),)
        return Committable(self._task.handle, copy.rows, copy.digest, extra)

    @abstractmethod
    def _begin(self) -> CopyIn: ...

    @abstractmethod
    def _end(self, copy: CopyIn) -> None:
        """End the transaction of a finished COPY, so that its rows are durable."""


class _OnlyWhole(LibpqWriter):
    """Ends a successful COPY; a failed one ends with its closed connection."""

    def finish(self, exc: BaseException | None = None) -> None:
        if exc is None:
            super().finish()
