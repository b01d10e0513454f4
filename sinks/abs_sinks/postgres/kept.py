"""The dead letters that a table of PostgreSQL keeps: listed, shown, and written again."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from psycopg import Connection, sql
from psycopg.rows import dict_row

from abs_clients.postgres.name import TableName
from abs_clients.postgres.pool import leased
from abs_core.contracts import Conflict, Task, Version
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import OptionError, RefusedError
from abs_core.model import Committable, JobState, Wrote, job_key
from abs_core.protocol import RunIdentity, Skip
from abs_sinks.deadletters import KeptLetters, readable, tell_unread
from abs_sinks.postgres import deadletters
from abs_sinks.postgres.epoch_transaction import EpochTransaction
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.sink import PostgresSink
from abs_sinks.postgres.target import SinkTable, SinkTables
from abs_sinks.postgres.wal import WalCoCommitter

_LIST = "take those that `abs deadletters list` shows."
_FIELDS = 'id, job, sink, epoch, at, code, message, "column", key, position'


class PostgresLetters(KeptLetters):
    """See ``KeptLetters``.

    Args:
        options: of the sink; ``deadletter`` names the table. ``replay`` needs protocol ``wal``.
    """

    def __init__(self, options: PostgresOptions) -> None:
        assert options.letters is not None
        self._options = options
        self._name: TableName = options.letters

    def found(
        self, *, job: str | None = None, code: str | None = None, replayed: bool = False
    ) -> list[dict[str, Any]]:
        where = "({job}::text is null or job = {job}) and ({code}::text is null or code = {code})"
        if not replayed:
            where += " and replayed is null"
        return self._rows(f"{_FIELDS}, replayed", where, job=job, code=code)

    def shown(self, ids: Sequence[int | str]) -> list[dict[str, Any]]:
        if wrong := [id_ for id_ in ids if not str(id_).isdecimal()]:
            raise OptionError(f"{wrong[0]!r} is no id of a table's dead letters.", remedy=_LIST)
        fields = f'{_FIELDS}, "row"::text as "row", schema, replayed'
        return self._rows(fields, "id = any({ids}::bigint[])", ids=list(map(int, ids)))

    def replay(self, ids: Sequence[int | str]) -> int:
        groups, unread = readable([one for one in self.shown(ids) if one["replayed"] is None])
        for letters, batch in groups:
            self._replay(sorted(letter["id"] for letter in letters), batch)
        written = sum(len(letters) for letters, _ in groups)
        tell_unread(unread, written)
        return written

    def _replay(self, ids: Sequence[int], batch: pa.RecordBatch) -> None:
        token = blake2b(",".join(map(str, ids)).encode(), digest_size=8).hexdigest()
        job = job_key(f"deadletters of {self._name}", token)
        # A row that is refused again is an error, and no other dead letter.
        plain = replace(self._options, deadletter=None)
        sink = PostgresSink(plain, batch.schema)
        committer = _Marking(self._name, SinkTable(plain, batch.schema), ids, token)
        run = secrets.token_hex(8)
        coordinator = Coordinator(
            RunIdentity(job, token, run, sink.target_id),
            sink.register(),
            committer,
            fence=sink.fence,
        )
        state, planned = coordinator.begin(0)
        if isinstance(planned, Skip):
            return
        task = Task(state.register, job, state.generation, 0, 0, secrets.token_hex(8))
        writer = sink.writer(task)
        try:
            writer.write(batch)
            made = writer.pre_commit()
        except BaseException:
            writer.abort()
            raise
        coordinator.commit(Report(0, [Wrote(batch.num_rows, made)], None))

    def _rows(self, fields: str, where: str, **values: Any) -> list[dict[str, Any]]:
        query = sql.Composed(
            [
                sql.SQL(f"select {fields} from "),
                self._name.identifier,
                sql.SQL(f" where {where} order by id").format(**values),
            ]
        )
        with leased(self._options.server, doing="reading dead letters") as connection:
            deadletters.check(connection, self._name)
            return connection.cursor(row_factory=dict_row).execute(query).fetchall()


class _Marking(WalCoCommitter):
    """Marks dead letters in the transaction that writes their rows."""

    def __init__(self, name: TableName, table: SinkTable, ids: Sequence[int], token: str) -> None:
        super().__init__(SinkTables({0: table}))
        self._name, self._ids, self._token = name, list(ids), token

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        transaction = EpochTransaction(self._tables, besides=self._mark)
        return transaction.co_commit(committables, expected, state)

    def _mark(self, connection: Connection[Any]) -> None:
        query = sql.SQL(
            "update {} set replayed = {} where id = any({}::bigint[]) and replayed is null"
        ).format(self._name.identifier, self._token, self._ids)
        if connection.execute(query).rowcount != len(self._ids):
            connection.execute("rollback")
            raise RefusedError(
                "Some of these dead letters were replayed or deleted in the meantime.",
                remedy="list them again; nothing was written.",
            )
