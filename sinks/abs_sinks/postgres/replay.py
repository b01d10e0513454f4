"""The dead letters that a table of PostgreSQL keeps: listed, shown, and written again."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from typing import Any

import pyarrow as pa
from psycopg import Connection, sql
from psycopg.rows import dict_row

from abs_clients.arrow import alike
from abs_clients.postgres.name import TableName
from abs_clients.postgres.pool import leased
from abs_core.contracts import Task
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import OptionError, RefusedError
from abs_core.model import Wrote, job_key
from abs_core.protocol import RunIdentity, Skip
from abs_sinks.deadletters.letter import LISTED, changes_of, schema_of
from abs_sinks.deadletters.place import KeptLetters, not_shown, of_target, readable, tell_unread
from abs_sinks.postgres import letter_table
from abs_sinks.postgres.apply.positions import agreed_in, positions_of
from abs_sinks.postgres.apply.target import SinkTable, SinkTables
from abs_sinks.postgres.columns.table import read_table
from abs_sinks.postgres.options import PostgresOptions, quoted_list
from abs_sinks.postgres.sink import PostgresSink
from abs_sinks.postgres.wal import WalCoCommitter

OF_CHANGES = ("key", "sequenceby", "applyasdeletes", "exceptcolumns", "positions", "unchanged")
"""Options that the command takes beside ``write`` and ``stateschema``."""

_CODES = ("contradiction", "older-than-row", "row-missing", "column-unknown")
"""Codes that only changes have."""

_LIST = "take those that `abs deadletters list` shows."
_FIELDS = ", ".join(["id", *(f'"{name}"' for name in LISTED)])


class PostgresLetters(KeptLetters):
    """See ``KeptLetters``.

    Args:
        options: of the sink; ``deadletter`` names the table. ``replay`` needs protocol ``wal``.
        texts: the options as text, to which letters add how they are written; None: they do not.
    """

    def __init__(self, options: PostgresOptions, texts: Mapping[str, str] | None = None) -> None:
        assert options.letters is not None
        self._options = options
        self._texts = texts
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

    def replay(self, ids: Sequence[int | str], refused_by: str | None = None) -> int:
        waiting = [one for one in self.shown(ids) if one["replayed"] is None]
        groups, unread = readable(of_target(waiting, self._target, refused_by))
        ways = [self._written_by(letters, batch) for letters, batch in groups]
        whole = [
            self._completed(letters, batch, options)
            for (letters, batch), options in zip(groups, ways, strict=True)
        ]
        written = 0
        for (letters, _), batch, options in zip(groups, whole, ways, strict=True):
            written += self._replay(sorted(letters, key=itemgetter("id")), batch, options)
        tell_unread(unread, written)
        return written

    def _target(self) -> str:
        """What letters of the table have in the field ``sink``."""
        with leased(self._options.server, doing="looking at the table") as connection:
            return letter_table.sink_of(read_table(connection, self._options.dbtable))

    def _written_by(
        self, letters: Sequence[dict[str, Any]], batch: pa.RecordBatch
    ) -> PostgresOptions:
        """The options by which rows of these letters are written again.

        Raises:
            OptionError: the rows are changes, and would be written as if they were none.
        """
        written, overrides = changes_of(letters[0]["schema"]), self._texts
        if written and overrides is not None and overrides.get("write", "changes") == "changes":
            return PostgresOptions.parse({**written, **overrides})
        options = self._options if overrides is None else PostgresOptions.parse(overrides)
        if not options.changes and (written := written or self._kept_for(letters, batch)):
            more = (
                ""
                if "applyasdeletes" in written
                else (
                    "; and --applyasdeletes, --unchanged and --exceptcolumns, if the job has them"
                )
            )
            raise OptionError(
                f"The letters are changes of table {options.dbtable} (the first is "
                f"{letters[0]['id']}): with write={options.write} an old one overwrites a newer row, "
                "and a delete writes one. Nothing was written.",
                remedy=f"replay them with {_arguments(written)}{more}.",
            )
        return options

    def _completed(
        self, letters: Sequence[dict[str, Any]], batch: pa.RecordBatch, options: PostgresOptions
    ) -> pa.RecordBatch:
        """The rows; of changes with the columns that the job does not write, as NULL.

        Raises:
            DataError: a column is missing that the table has.
        """
        schema = schema_of(letters[0]["schema"])
        missing = [field for field in schema if field.name not in batch.schema.names]
        if not missing:
            return batch
        with leased(self._options.server, doing="looking at the table") as connection:
            table = read_table(connection, options.dbtable)
        names = [column.name for column in table.columns]
        unwritten = [field for field in missing if alike(field.name, options.exceptcolumns)]
        hidden = [f.name for f in missing if f not in unwritten and alike(f.name, names)]
        if hidden:
            remedy = "write such rows by hand, from their source, and set replayed."
            raise not_shown(letters[0], hidden, remedy)
        if not options.changes:
            return batch
        if options.schemachange == "ignore":
            roles = (*options.sequenceby, options.applyasdeletes.column, options.unchanged or "")
            unwritten = [field for field in missing if not alike(field.name, roles)]
        columns = [pa.nulls(batch.num_rows, field.type) for field in unwritten]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *columns], schema=pa.schema([*batch.schema, *unwritten])
        )

    def _kept_for(self, letters: Sequence[dict[str, Any]], batch: pa.RecordBatch) -> dict[str, str]:
        """As ``changes_of``, for letters of an older release: by their codes, or by the table."""
        with leased(self._options.server, doing="looking at the table") as connection:
            table = read_table(connection, self._options.dbtable)
            for schema, comment in positions_of(connection, table):
                shared = agreed_in(comment, schema)
                if all(alike(name, batch.schema.names) for name in shared["sequenceby"]):
                    return {
                        "write": "changes",
                        "key": quoted_list(shared["key"]),
                        "sequenceby": quoted_list(shared["sequenceby"]),
                        "positions": shared["positions"],
                        "stateschema": schema,
                    }
        if any(letter["code"] in _CODES for letter in letters):
            return {"write": "changes", "sequenceby": "COLUMNS"}
        return {}

    def _replay(
        self, letters: Sequence[dict[str, Any]], batch: pa.RecordBatch, options: PostgresOptions
    ) -> int:
        """How many this call has written: 0 if another process just did."""
        ids = [letter["id"] for letter in letters]
        # With their times: a table that was emptied or made again gives the same ids to new letters.
        which = f"{self._name} {[(letter['id'], letter['at'].timestamp()) for letter in letters]}"
        token = blake2b(which.encode(), digest_size=8).hexdigest()
        job = job_key("deadletters", token)
        # A row that is refused again is an error, and no other dead letter.
        plain = replace(options, deadletter=None)
        sink = PostgresSink(plain, batch.schema)
        tables = SinkTables({0: SinkTable(plain, batch.schema)})
        committer = WalCoCommitter(tables, besides=partial(self._mark, ids, token))
        run = secrets.token_hex(8)
        coordinator = Coordinator(
            RunIdentity(job, token, run, sink.target_id),
            sink.register(),
            committer,
            fence=sink.fence,
        )
        state, planned = coordinator.begin(0)
        if isinstance(planned, Skip):
            if any(letter["replayed"] is None for letter in self.shown(ids)):
                raise RefusedError(
                    f"These dead letters were replayed before ({job}), and table {self._name} does not "
                    "say so: it was restored. Nothing was written.",
                    remedy="if the table of their rows has these, set the column replayed; if it was "
                    f"restored, too: `abs register retire {job}`, then replay them",
                )
            return 0
        task = Task(state.register, job, state.generation, 0, 0, secrets.token_hex(8))
        writer = sink.writer(task)
        try:
            writer.write(batch)
            made = writer.pre_commit()
        except BaseException:
            writer.abort()
            raise
        coordinator.commit(Report(0, [Wrote(batch.num_rows, made)], None))
        return len(ids)

    def _mark(self, ids: Sequence[int], token: str, connection: Connection[Any]) -> None:
        """Mark the letters, in the transaction that writes their rows."""
        query = sql.SQL(
            "update {} set replayed = {} where id = any({}::bigint[]) and replayed is null"
        ).format(self._name.identifier, token, list(ids))
        if connection.execute(query).rowcount != len(ids):
            connection.execute("rollback")
            raise RefusedError(
                "Some of these dead letters were replayed or deleted in the meantime.",
                remedy="list them again; nothing was written.",
            )

    def _rows(self, fields: str, where: str, **values: Any) -> list[dict[str, Any]]:
        query = sql.Composed(
            [
                sql.SQL(f"select {fields} from "),
                self._name.identifier,
                sql.SQL(f" where {where} order by id").format(**values),
            ]
        )
        with leased(self._options.server, doing="reading dead letters") as connection:
            letter_table.check(connection, self._name)
            return connection.cursor(row_factory=dict_row).execute(query).fetchall()


def _arguments(options: Mapping[str, str]) -> str:
    """Arguments of ``abs deadletters replay``, as a shell reads them."""
    names = ("write", *OF_CHANGES, "stateschema")
    return " ".join(f"--{name} {shlex.quote(options[name])}" for name in names if name in options)
