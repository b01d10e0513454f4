"""Copies batches one by one under savepoints: rows that client or server refuse become dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from psycopg import Connection, sql

from abs_clients.postgres.connection import or_close
from abs_clients.postgres.errors import translate_errors
from abs_sinks.deadletters import DeadLetter, dead_letters, why_bad
from abs_sinks.postgres.deadletters import shown
from abs_sinks.postgres.encode import slices
from abs_sinks.postgres.judging import reason_of, refused_rows
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.target import ResolvedTable, noticing_new_columns
from abs_sinks.refusals import BadRows

Bury = Callable[[Sequence[DeadLetter]], None]


class JudgedCopy:
    """As ``CopyIn``, with a COPY for each ``batchsize`` rows, in the connection's transaction.

    Args:
        into: see ``CopyPlan.copy_statement``.
        bury: puts dead letters where the decision finds them, in the same transaction.
    """

    def __init__(
        self,
        connection: Connection[Any],
        target: ResolvedTable,
        options: PostgresOptions,
        into: sql.Identifier | None,
        bury: Bury,
    ) -> None:
        self.connection = connection
        self.plan = target.plan
        self._options = options
        self._bury = bury
        self._shown = shown(options, target.plan, target.key)
        self._statement = target.plan.copy_statement(into)
        self._digest = xxhash.xxh3_128()
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    @property
    def digest(self) -> str:
        """A digest of the bytes sent, also of rows that the server then refused."""
        return f"xxh3_128:{self._digest.hexdigest()}"

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        if self._rows >= self._options.batchsize:
            self.finish()

    def finish(self) -> None:
        """Send the batches that are held, and wait until the server has taken or refused each row."""
        held, self._held, self._rows = self._held, [], 0
        doing = f"copying rows for table {self.plan.table.label}"
        with or_close(self.connection), translate_errors(doing):
            for piece in pa.Table.from_batches(held).combine_chunks().to_batches() if held else ():
                for some in slices(piece, self._options.batchsize):
                    self._judge(some)

    def _judge(self, piece: pa.RecordBatch) -> None:
        letters: list[DeadLetter] = []

        def aside(part: pa.RecordBatch, bad: BadRows) -> None:
            letters.extend(dead_letters(part, why_bad(bad), self._shown))

        data = self._encoded(piece, aside)
        rows = piece.num_rows - len(letters)
        good = piece

        def attempt(first: int, end: int) -> None:
            nonlocal good
            if (first, end) == (0, rows):
                self._send(data)
                return
            if good.num_rows > rows:  # the server refuses some of what the client let pass
                good = piece.filter(pc.invert(self.plan.encoder().bad_rows(piece).mask))
            self._send(self._encoded(good.slice(first, end - first)))

        if rows:
            label = self.plan.table.label
            refused = refused_rows(self.connection, rows, attempt, self._options, label)
            why = [(n, *reason_of(error)) for n, error in sorted(refused.items())]
            letters += dead_letters(good, why, self._shown)
        if letters:
            self._bury(letters)

    def _encoded(
        self,
        batch: pa.RecordBatch,
        aside: Callable[[pa.RecordBatch, BadRows], None] | None = None,
    ) -> bytes:
        """The bytes of one whole COPY."""
        encoder = self.plan.encoder()
        return b"".join((encoder.header(), encoder.encode(batch, aside), encoder.finish()))

    def _send(self, data: bytes) -> None:
        self._digest.update(data)
        with noticing_new_columns(self._options, self.plan), self._copying() as copy:
            copy.write(data)

    def _copying(self) -> Any:
        cursor: psycopg.Cursor[Any] = self.connection.cursor()
        return cursor.copy(self._statement)
