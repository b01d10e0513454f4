"""One COPY FROM STDIN on the wire, fed with Arrow batches; the driver's errors pass through."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import xxhash
from psycopg import Connection, Copy, sql
from psycopg.copy import LibpqWriter

from abs_sinks.postgres.columns.encode import Aside
from abs_sinks.postgres.columns.plan import CopyPlan


class Feed:
    """A COPY in the connection's transaction.

    After an error of ``write`` the connection must be closed. After one of ``finish``, which tells what
    the server refused, the transaction can go back to a savepoint.

    Args:
        into: see ``CopyPlan.copy_statement``.
        digest: takes the bytes that are sent.
    """

    def __init__(
        self,
        connection: Connection[Any],
        plan: CopyPlan,
        into: sql.Identifier | None,
        digest: xxhash.xxh3_128,
    ) -> None:
        self._digest = digest
        self._encoder = plan.encoder()
        self._stack = ExitStack()
        cursor = connection.cursor()
        copy = cursor.copy(plan.copy_statement(into), writer=_OnlyWhole(cursor))
        self._copy: Copy = self._stack.enter_context(copy)
        self._send(self._encoder.header())

    def write(self, batch: pa.RecordBatch, aside: Aside | None = None) -> None:
        """Encode and send a batch. Arguments as ``Encoder.encode``."""
        self._send(self._encoder.encode(batch, aside))

    def finish(self) -> None:
        """End the COPY, and wait until the server has taken all rows."""
        self._send(self._encoder.finish())
        self._stack.close()

    def _send(self, data: bytes) -> None:
        self._digest.update(data)
        self._copy.write(data)


class _OnlyWhole(LibpqWriter):
    """Ends a successful COPY; a failed one ends with its closed connection."""

    def finish(self, exc: BaseException | None = None) -> None:
        if exc is None:
            super().finish()
