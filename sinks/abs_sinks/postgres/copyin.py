"""One COPY, fed with Arrow batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import xxhash
from psycopg import Connection, sql

from abs_clients.postgres.connection import Tag, or_close
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import pool
from abs_core.contracts import Task
from abs_core.errors import ContentionError, TargetError, UnavailableError
from abs_core.model import PROTOCOL, Committable
from abs_sinks.checking import CountingWriter
from abs_sinks.deadletters.letter import DeadLetter
from abs_sinks.deadletters.writer import Letters
from abs_sinks.postgres.apply.statements import naming_option
from abs_sinks.postgres.apply.target import ResolvedTable, SinkTable, noticing_new_columns
from abs_sinks.postgres.columns.encode import Aside, slices
from abs_sinks.postgres.columns.feed import Feed
from abs_sinks.postgres.columns.plan import CopyPlan
from abs_sinks.postgres.letter_table import shown_key, sink_of
from abs_sinks.postgres.letters.copy_with_letters import CopyWithLetters
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.relations import Table, noting
from abs_sinks.refusals import BadRows


class CopyIn:
    """One COPY FROM STDIN in the connection's transaction.

    An error closes the connection, so that the server rolls back at once. ``into``: see
    ``CopyPlan.copy_statement``; ``aside``: see ``Encoder.encode``.
    """

    def __init__(
        self,
        connection: Connection[Any],
        plan: CopyPlan,
        options: PostgresOptions,
        into: sql.Identifier | None = None,
        aside: Aside | None = None,
    ) -> None:
        self.connection = connection
        self.plan = plan
        self._options = options
        self._aside = aside
        self._doing = f"copying rows for table {plan.table.label}"
        self._digest = xxhash.xxh3_128()
        with self._mapped():
            self._feed = Feed(connection, plan, into, self._digest)

    @property
    def digest(self) -> str:
        """A digest of the bytes sent."""
        return f"xxh3_128:{self._digest.hexdigest()}"

    def write(self, batch: pa.RecordBatch) -> None:
        with self._mapped():
            for piece in slices(batch, self._options.batchsize):
                self._feed.write(piece, self._aside)

    def finish(self) -> None:
        """End the COPY, and wait until the server has taken all rows."""
        with self._mapped():
            self._feed.finish()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        with (
            naming_option(self._options),
            or_close(self.connection),
            translate_errors(self._doing),
            noticing_new_columns(self._options, self.plan),
        ):
            yield


Copy = CopyIn | CopyWithLetters
"""A COPY that ends with its first bad row, or makes dead letters of such rows."""


class CopyWriter(CountingWriter):
    """The base of writers: a task's transaction with a COPY, or one after another.

    It begins with the first row.

    Args:
        table: of the next rows; set to another one, they go there by a COPY of its own.
    """

    def __init__(self, table: SinkTable, task: Task) -> None:
        super().__init__(task)
        self.table = table
        self._options = options = table.options
        self._tag = Tag(task.register, task.generation)
        self._extra: tuple[tuple[str, str], ...] = ((PROTOCOL, options.protocol),)
        self._connection: Connection[Any] | None = None
        self._copy: Copy | None = None
        self._into: SinkTable | None = None
        self._digests: list[str] = []
        self._tables: set[Table] = set()
        self._waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        number = self.number
        super().write(batch)
        # Not earlier: they may be rows of this writer, for another table.
        waiting, self._waiting = self._waiting, []
        for letters in waiting:
            self._elsewhere[number](letters)

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """The rows that the table cannot hold; nothing is sent."""
        return self.table.target().plan.encoder().bad_rows(batch)

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._copy is None or self.table is not self._into:
            # A connection has one COPY at a time: that of the table before ends first.
            self._complete()
            self._copy, self._into = self._begun(), self.table
            self._connection = self._copy.connection
        if (letters := self._letters_of(self.table.options)) is not None:
            letters.add(rows=batch.num_rows)
        self._copy.write(batch)

    def _begun(self) -> Copy:
        """Begin a COPY; before the task's first row, wait for a server that is away."""
        if self._connection is not None:
            return self._begin()  # rows were sent through it: they are lost with it
        patience = replace(self._options.patience, job=self._task.job)
        begun = patience.retry(partial(_or_lasting, self._begin))
        if isinstance(begun, TargetError):
            raise begun
        return begun

    def _copying(
        self, connection: Connection[Any], target: ResolvedTable, into: sql.Identifier | None = None
    ) -> Copy:
        """The COPY of rows for the present table; see ``CopyIn``."""
        options = self.table.options
        self._tables.add((target.table.label, target.table.oid))
        letters = self._letters_of(options)
        if letters is None:
            return CopyIn(connection, target.plan, options, into)
        if letters.given:
            aside = partial(self._put_aside, target, letters)
            return CopyIn(connection, target.plan, options, into, aside)

        def bury(rows: Sequence[DeadLetter]) -> None:
            letters.add(dead=len(rows))
            self._bury(connection, target, rows)

        return CopyWithLetters(connection, target, options, into, bury)

    def _put_aside(
        self, target: ResolvedTable, letters: Letters, part: pa.RecordBatch, bad: BadRows
    ) -> None:
        """Keep what another sink gets, until the batch is written."""
        plan, key = target.plan, shown_key(target.plan, target.key)
        written = self.table.options.written
        rows = letters.rows_of(part, bad, self._task, sink_of(plan.table), key, written)
        is_elsewhere = self.number in self._elsewhere
        letters.give(rows, self._waiting.append if is_elsewhere else None)
        self._rows -= rows.num_rows

    @abstractmethod
    def _bury(
        self, connection: Connection[Any], target: ResolvedTable, letters: Sequence[DeadLetter]
    ) -> None:
        """Put dead letters where the decision finds them, in the connection's transaction."""

    def _complete(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.finish()
            self._digests.append(copy.digest)

    def _prepared(self) -> Committable:
        assert self._connection is not None
        # From here on `abort` must not close it: the pool may lend it to the next task.
        connection, self._connection = self._connection, None
        self._end(connection, self._made())
        pool(self._options.server).give_back(connection)
        return self._made()  # again: the end may have found dead letters

    def _made(self) -> Committable:
        extra = tuple(sorted((*self._extra, *noting(self._tables))))
        made = Committable(self._task.handle, self._rows, self._digest(), extra)
        return self._counted(made)

    def _digest(self) -> str:
        """A digest of the bytes sent, COPY by COPY."""
        if len(self._digests) == 1:
            return self._digests[0]
        return f"xxh3_128:{xxhash.xxh3_128(' '.join(self._digests).encode()).hexdigest()}"

    @abstractmethod
    def _begin(self) -> Copy:
        """Begin a COPY of rows for the table; in the connection's transaction, if there is one."""

    @abstractmethod
    def _end(self, connection: Connection[Any], made: Committable) -> None:
        """End the transaction of the finished COPY, so that its rows are durable."""


def _or_lasting(
    begin: Callable[[], Copy],
) -> Copy | TargetError:
    """What ``begin`` returns; or its error, if the server is there and says it."""
    try:
        return begin()
    except ContentionError as error:
        return error  # the server has waited for the lock, for ``locktimeout``
    except UnavailableError as error:
        if (getattr(error.__cause__, "sqlstate", None) or "").startswith("53"):
            return error  # it is out of memory or disk, which tasks that wait do not free
        raise
