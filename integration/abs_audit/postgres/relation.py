"""A PostgreSQL table as a relation, streamed by COPY in the server's own text format."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as pc
from duckdb import DuckDBPyConnection, DuckDBPyRelation
from psycopg import Connection, sql

from abs_audit.carry import quoted
from abs_audit.contracts import PLACE, Relation, Side
from abs_audit.families import Type
from abs_audit.postgres.catalog import Carriage, CatalogTable, find_table, read_by
from abs_audit.postgres.doubts import look
from abs_audit.progress import streamed
from abs_audit.report import LeftBehind
from abs_clients.buffers import csv_block
from abs_clients.postgres.address import Address
from abs_clients.postgres.errors import cannot_connect, translate_errors
from abs_clients.postgres.name import TableName
from abs_core.errors import CorruptionError, OptionError, SchemaError
from abs_sinks.deadletters.place import KeptLetters
from abs_sinks.postgres.options import PostgresOptions

BLOCK_BYTES = 4 << 20
"""How much of COPY's output is parsed at once."""

_SESSION = {
    "default_transaction_read_only": "on",
    # A policy that hides rows makes the read fail; it never shortens it in silence.
    "row_security": "off",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "1",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


class PostgresSide(Side):
    """See ``Side``."""

    def at(self, url: str, table: str | None, null: str | None, stateschema: str) -> PostgresTable:
        if table is None:
            raise OptionError(
                "A database is named, and no table.",
                remedy="name it: --table for the target, --expected-table for what is expected; in "
                "Python, table=...",
            )
        return PostgresTable(Address.parse(url), TableName.parse(table), stateschema)

    def letters(
        self, url: str, deadletter: str, table: str | None, stateschema: str
    ) -> tuple[KeptLetters | None, Callable[[str], bool]]:
        """See ``Side``. A letter's sink has a schema: the server tells that of the table's name."""
        sinks = cache(self.at(url, table, None, stateschema).sinks)
        kept = self._kept(url, deadletter, table, stateschema=stateschema)
        return kept, lambda name: name in sinks()

    def refused_by(self, options: PostgresOptions) -> Callable[[str], bool]:
        """See ``Side``. The server tells the schema of the table's name."""
        sinks = cache(self.of(options).sinks)
        return lambda name: name in sinks()

    def of(self, options: PostgresOptions) -> PostgresTable:
        return PostgresTable(options.address, options.dbtable, options.stateschema)


@dataclass(frozen=True, slots=True)
class PostgresTable(Relation):
    """All rows of a table (with its partitions) or view, in one snapshot per read.

    Its ``repr`` and name show no password (I9).

    Args:
        stateschema: schema of registers and staging of the sinks that write to it.
        locktimeout: seconds to wait for a lock on the table.
    """

    address: Address
    table: TableName
    stateschema: str = "abs"
    locktimeout: float = 10.0

    @property
    def name(self) -> str:
        return f"{self.address.label} {self.table}"

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        with self._session() as session:
            return {name: one.type for name, one in self._find(session).columns.items()}

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        with self._session() as session:
            table = self._find(session)
            wanted = _wanted(table, names)
            schema = pa.schema([(name, one.arrow) for name, one in wanted])
            batches = self._batches(session, table, wanted, schema)
            with streamed(connection, schema, batches) as incoming:
                taken = (one.take.replace("{c}", quoted(name)) for name, one in wanted)
                yield incoming.project(", ".join(taken))

    def left_behind(self) -> LeftBehind:
        with (
            self._session() as session,
            translate_errors(f"looking for what is left behind in {self.name}"),
        ):
            return look(session, find_table(session, self.table), self.stateschema)

    def sinks(self) -> frozenset[str]:
        """What dead letters of rows that this relation would show say that they were refused by."""
        with self._session() as session:
            table = self._find(session)
            with translate_errors(f"reading what {self.name} reads"):
                return frozenset(f"{schema}.{name}" for schema, name in read_by(session, table))

    def _find(self, session: Connection[Any]) -> CatalogTable:
        with translate_errors(f"reading the columns of {self.name}"):
            return find_table(session, self.table)

    @contextlib.contextmanager
    def _session(self) -> Iterator[Connection[Any]]:
        try:
            session = psycopg.connect(
                self.address.conninfo(application_name="abs-audit", client_encoding="UTF8"),
                autocommit=True,
                prepare_threshold=None,
            )
        except psycopg.Error as error:
            raise cannot_connect(error, self.address.label) from error
        with contextlib.closing(session):
            settings = {**_SESSION, "lock_timeout": str(round(self.locktimeout * 1000))}
            with translate_errors("setting up the session"):
                for name, value in settings.items():
                    session.execute("select set_config(%s, %s, false)", (name, value))
            yield session

    def _batches(
        self,
        session: Connection[Any],
        table: CatalogTable,
        wanted: Sequence[tuple[str, Carriage]],
        schema: pa.Schema,
    ) -> Iterator[pa.RecordBatch]:
        # CSV tells NULL (nothing) from empty text (""); the server quotes what needs it.
        columns = sql.SQL(", ").join(
            sql.SQL(one.select).format(c=sql.Identifier(name)) for name, one in wanted
        )
        query = sql.SQL("copy (select {columns} from {table}) to stdout (format csv)").format(
            columns=columns, table=table.identifier
        )
        with translate_errors(f"reading {self.name}"), session.cursor().copy(query) as copy:
            for block in _blocks(copy):
                try:
                    parsed = _parsed(block, schema)
                except pa.ArrowInvalid as error:
                    raise CorruptionError(
                        f"{self.name} sent what is no CSV of its columns: {error}.",
                        remedy="look whether the database's encoding is a true one (not SQL_ASCII).",
                    ) from error
                yield from parsed.to_batches()


def _wanted(table: CatalogTable, names: Sequence[str]) -> list[tuple[str, Carriage]]:
    columns = {**table.columns, PLACE: table.place}
    if any(name not in columns for name in names):
        raise SchemaError(
            f"Table {table.identifier.as_string()} was altered during the audit.",
            remedy="run it again.",
        )
    return [(name, columns[name]) for name in names]


def _blocks(copy: psycopg.Copy) -> Iterator[bytes]:
    """COPY's output in blocks of whole rows: the server sends each row as one message."""
    rows: list[bytes] = []
    size = 0
    for row in copy:
        rows.append(bytes(row))
        size += len(row)
        if size >= BLOCK_BYTES:
            yield b"".join(rows)
            rows, size = [], 0
    if rows:
        yield b"".join(rows)


def _parsed(block: bytes, schema: pa.Schema) -> pa.Table:
    return pc.read_csv(
        pa.py_buffer(csv_block(block)),
        read_options=pc.ReadOptions(column_names=schema.names),
        parse_options=pc.ParseOptions(
            newlines_in_values=True,
            ignore_empty_lines=False,  # one column, NULL: an empty line is a row
        ),
        convert_options=pc.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
