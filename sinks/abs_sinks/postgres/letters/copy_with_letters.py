"""Copies batches, and makes dead letters of the rows that client or server refuse.

Good rows are streamed as by ``CopyIn``, in stretches of one COPY under one savepoint. Only if the
server refuses a stretch are its rows written again, by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import xxhash
from psycopg import Connection, sql

from abs_clients.postgres.connection import or_close
from abs_clients.postgres.errors import by_data, translate_errors
from abs_sinks.deadletters.letter import DeadLetter, dead_letters, why_bad
from abs_sinks.postgres.apply.target import ResolvedTable, noticing_new_columns
from abs_sinks.postgres.columns.encode import slices
from abs_sinks.postgres.columns.feed import Feed
from abs_sinks.postgres.letter_table import shown
from abs_sinks.postgres.letters.refused_rows import reason_of, refused_rows
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.refusals import BadRows

Bury = Callable[[Sequence[DeadLetter]], None]

STRETCH_BYTES = 32 << 20
"""Bytes of rows that are held until the server has taken them."""

STRETCH_LETTERS = 1000
"""Dead letters that are held until the server has taken the rows beside them."""


class CopyWithLetters:
    """As ``CopyIn``, in the connection's transaction.

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
        self._into = into
        self._bury = bury
        self._shown = shown(options, target.plan, target.key)
        self._digest = xxhash.xxh3_128()
        self._begin_stretch()

    @property
    def digest(self) -> str:
        """A digest of the bytes sent, also of rows that the server then refused."""
        return f"xxh3_128:{self._digest.hexdigest()}"

    def write(self, batch: pa.RecordBatch) -> None:
        with self._mapped():
            for piece in slices(batch, self._options.batchsize):
                self._stream(piece)
                if self._bytes >= STRETCH_BYTES or len(self._letters) >= STRETCH_LETTERS:
                    self._end_stretch()

    def finish(self) -> None:
        """Wait until the server has taken or refused each row."""
        with self._mapped():
            self._end_stretch()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        doing = f"copying rows for table {self.plan.table.label}"
        with or_close(self.connection), translate_errors(doing):
            yield

    def _begin_stretch(self) -> None:
        self._feed: Feed | None = None
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._letters: list[DeadLetter] = []

    def _stream(self, piece: pa.RecordBatch) -> None:
        if self._feed is None:
            self.connection.execute("savepoint abs_stretch")
            self._feed = self._feeding()
        self._held.append(piece)
        self._bytes += piece.nbytes
        self._feed.write(piece, self._burying(self._letters))

    def _end_stretch(self) -> None:
        if self._feed is None:
            return
        feed, held, letters = self._feed, self._held, self._letters
        self._begin_stretch()
        try:
            feed.finish()
            self.connection.execute("release savepoint abs_stretch")
        except psycopg.Error as error:
            if self.connection.closed or not by_data(error):
                raise
            self.connection.execute("rollback to savepoint abs_stretch")
            # Those found so far are found again among the rows: kept, they would be there twice.
            letters = []
            for piece in pa.Table.from_batches(held).combine_chunks().to_batches():
                for some in slices(piece, self._options.batchsize):
                    letters += self._one_by_one(some)
        if letters:
            self._bury(letters)

    def _one_by_one(self, piece: pa.RecordBatch) -> list[DeadLetter]:
        """Write the rows that the server takes; the others as dead letters."""
        bad = self.plan.encoder().bad_rows(piece)
        letters = dead_letters(piece, why_bad(bad), self._shown) if bad else []
        good = bad.others(piece) if bad else piece

        def attempt(first: int, end: int) -> None:
            with noticing_new_columns(self._options, self.plan):
                feed = self._feeding()
                feed.write(good.slice(first, end - first))
                feed.finish()

        label = self.plan.table.label
        refused = refused_rows(self.connection, good.num_rows, attempt, self._options, label)
        why = [(n, *reason_of(error)) for n, error in sorted(refused.items())]
        return letters + dead_letters(good, why, self._shown)

    def _feeding(self) -> Feed:
        return Feed(self.connection, self.plan, self._into, self._digest)

    def _burying(self, letters: list[DeadLetter]) -> Callable[[pa.RecordBatch, BadRows], None]:
        def aside(part: pa.RecordBatch, bad: BadRows) -> None:
            letters.extend(dead_letters(part, why_bad(bad), self._shown))

        return aside
