"""Resolves the target table: identity, shape and copy plan, once in a process.

Engines build a sink per task. Each writing transaction checks the cached ``shape`` with the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection, sql

from abs_clients.postgres.metadata import MetadataSchema, exists, in_turn
from abs_clients.postgres.pool import leased, pool
from abs_core.deadletters import counts_of
from abs_core.errors import ProtocolError, SchemaError
from abs_core.model import Committable, HandleName
from abs_core.sinkmap import number_of
from abs_sinks.postgres import letter_table
from abs_sinks.postgres.apply.newcolumns import add_before
from abs_sinks.postgres.apply.write import Write, write_of
from abs_sinks.postgres.columns.create import create_table_statement
from abs_sinks.postgres.columns.plan import CopyPlan
from abs_sinks.postgres.columns.table import CatalogTable, read_table
from abs_sinks.postgres.options import PostgresOptions


@dataclass(frozen=True, slots=True)
class ResolvedTable:
    """A resolved table.

    Args:
        identity: ``postgres:<system identifier>/<database>/<schema>.<table>``.
        shape: digest of its columns when the plan was made.
        write: how rows get into it.
    """

    identity: str
    shape: str
    write: Write

    @property
    def plan(self) -> CopyPlan:
        return self.write.plan

    @property
    def table(self) -> CatalogTable:
        return self.plan.table

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self.write.key


def _never_written() -> None:
    """For a sink without an engine: its table is new if it is missing."""


def resolve(
    options: PostgresOptions, schema: pa.Schema, if_missing: Callable[[], None] = _never_written
) -> ResolvedTable:
    """Resolve the target for this input; creates the table with ``createtable``.

    Args:
        if_missing: see ``Sink``.

    Raises:
        IdentityError: the table is missing, and the job has committed to it.
        SchemaError: the table is missing, or the input does not fit it.
        PreflightError: its kind cannot be written to.
        TargetError: the server refused or did not answer.
    """
    key = _key(options, schema)
    kept: ResolvedTable | None = pool(options.server).answers.get(key)
    if kept is not None:
        return kept
    doing, create = f"reading the shape of table {options.dbtable}", options.createtable
    with leased(options.server, doing=doing) as connection:
        write = plan_for(connection, options, schema, create=create, if_missing=if_missing)
        plan = write.plan
        if hidden := plan.table.hidden():
            raise hidden
        write.ensure(connection, options)
        shape = connection.execute(plan.shape_query()).fetchone()
        identity = identity_of(connection, options, plan.table, mint=True)
        if options.letters is not None:
            letter_table.ensure(connection, options.letters)
    assert identity is not None
    target = ResolvedTable(identity, "" if shape is None else shape[0], write)
    if not plan.added:  # else the table is about to change
        pool(options.server).answers[key] = target
    return target


def resolve_again(
    options: PostgresOptions, schema: pa.Schema, if_missing: Callable[[], None]
) -> ResolvedTable:
    """``resolve`` at the start of a run: what the process remembers may be gone or altered by now."""
    key = _key(options, schema)
    kept: ResolvedTable | None = pool(options.server).answers.get(key)
    if kept is not None:
        with leased(options.server, doing=f"looking for table {options.dbtable}") as connection:
            shape = connection.execute(kept.plan.shape_query()).fetchone()
            beside = (exists(connection, name) for name in kept.write.beside())
            if shape != (kept.shape,) or not all(beside):
                pool(options.server).answers.pop(key, None)
    return resolve(options, schema, if_missing)


def with_new_columns(
    options: PostgresOptions, schema: pa.Schema, if_missing: Callable[[], None] = _never_written
) -> ResolvedTable:
    """``resolve``, after new columns were added to the table (option ``schemachange``).

    Raises:
        As ``resolve``; ContentionError: the table is locked for longer than ``locktimeout``.
    """
    while (target := resolve(options, schema, if_missing)).plan.added:
        with leased(options.server) as connection:
            add_before(connection, target.plan)
    return target


def forget(options: PostgresOptions, plan: CopyPlan) -> None:
    """Drop the cached target: the table has changed, or is gone."""
    pool(options.server).answers.pop(_key(options, plan.schema), None)


def altered(options: PostgresOptions, plan: CopyPlan) -> SchemaError:
    """The error for a table that was altered since the plan; drops the cached target."""
    forget(options, plan)
    return SchemaError(
        f"Table {plan.table.label} was altered, or dropped, since this process looked at it.",
        remedy="the next attempt looks again: restart the query if it has stopped.",
    )


@contextmanager
def noticing_new_columns(options: PostgresOptions, plan: CopyPlan) -> Iterator[None]:
    """Raise the SchemaError of a start for a new NOT NULL column that the input lacks."""
    try:
        yield
    except psycopg.errors.NotNullViolation as error:
        if error.diag.column_name not in plan.names:
            forget(options, plan)
            try:
                resolve(options, plan.schema)
            except SchemaError as found:
                raise found from error
        raise


@contextmanager
def noticing_changes(options: PostgresOptions, plan: CopyPlan) -> Iterator[None]:
    """Map the driver's errors that tell that the table was altered since the plan to a SchemaError."""
    try:
        with noticing_new_columns(options, plan):
            yield
    except (psycopg.errors.DatatypeMismatch, psycopg.errors.UndefinedColumn) as error:
        raise altered(options, plan) from error
    except psycopg.errors.UndefinedTable:
        forget(options, plan)
        raise


def plan_for(
    connection: Connection[Any],
    options: PostgresOptions,
    schema: pa.Schema,
    *,
    create: bool,
    if_missing: Callable[[], None] = _never_written,
) -> Write:
    """How rows get into the table as it is now.

    The driver's errors pass through.

    Raises:
        SchemaError: the table is missing and may not be created, or the input does not fit it.
        PreflightError: its kind cannot be written to.
    """
    if exists(connection, str(options.dbtable)):
        table = read_table(connection, options.dbtable)
    else:
        if_missing()
        table = _missing_table(connection, options, schema, create=create)
    return write_of(options).planned(connection, options, schema, table)


def identity_of(
    connection: Connection[Any],
    options: PostgresOptions,
    table: CatalogTable,
    *,
    mint: bool = False,
) -> str | None:
    """``postgres:<system identifier>/<database>/<schema>.<table>``, the same on every route.

    initdb makes the system identifier; a physical replica shares it, a logical copy does not. If the
    role may not read it, an id in the state schema is used instead.

    Args:
        mint: whether such an id may be created; else the result without one is None.
    """
    row = connection.execute(
        "select current_database(), has_function_privilege('pg_control_system()', 'execute')"
    ).fetchone()
    assert row is not None
    database, readable = row
    if readable:
        query = sql.SQL("select system_identifier::text from pg_control_system()")
        identifier = connection.execute(query).fetchone()
    else:
        identifier = (_minted if mint else _kept)(connection, options.state)
    if identifier is None:
        return None
    return f"postgres:{identifier[0]}/{within(database, table.schema, table.name)}"


def within(database: str, schema: str, name: str) -> str:
    """The part of a table's identity that is behind the server's."""
    return f"{_plain(database)}/{label_of(schema, name)}"


def label_of(schema: str, name: str) -> str:
    """The part of a table's identity that is behind the database's."""
    return f"{_plain(schema)}.{_plain(name)}"


def identity_at(options: PostgresOptions) -> str | None:
    """``identity_of`` for commands, which do not know the input; changes nothing.

    Raises:
        SchemaError: the table is missing.
        TargetError: the server refused or did not answer.
    """
    with leased(options.server, doing="looking at the table") as connection:
        table = read_table(connection, options.dbtable)
        return identity_of(connection, options, table)


def _plain(name: str) -> str:
    """The name, quoted if it is ambiguous."""
    return name if _PLAIN.fullmatch(name) else sql.Identifier(name).as_string()


_PLAIN = re.compile(r"[A-Za-z0-9_$-]+")


def _minted(connection: Connection[Any], schema: MetadataSchema) -> tuple[str] | None:
    schema.ensure(connection)
    table = schema.table("server")
    statements = sql.SQL(_MINT).format(table)
    in_turn(connection, lambda: connection.execute(statements))
    return _kept(connection, schema)


def _kept(connection: Connection[Any], schema: MetadataSchema) -> tuple[str] | None:
    """The id in the state schema, if any."""
    table = schema.table("server")
    if not exists(connection, table.as_string()):
        return None
    return connection.execute(sql.SQL("select id from {}").format(table)).fetchone()


_MINT = """
create table if not exists {0} (one bool primary key default true check (one), id text not null);
insert into {0} (id) values (gen_random_uuid()) on conflict do nothing
"""


def _missing_table(
    connection: Connection[Any], options: PostgresOptions, schema: pa.Schema, *, create: bool
) -> CatalogTable:
    """The table, created if that is allowed, or read if another process has created it meanwhile."""
    name = options.dbtable
    columns = write_of(options).created(options, schema)
    statement = create_table_statement(columns, name, key=options.key)
    if create:
        in_turn(connection, lambda: connection.execute(statement))
    return read_table(connection, name, fitting=statement.as_string(connection))


def _key(options: PostgresOptions, schema: pa.Schema) -> Hashable:
    return (
        "table",
        options.dbtable,
        options.key,
        options.orderby,
        options.write,
        options.changes,
        options.onconflict,
        options.deadletter,
        options.schemachange,
        options.stateschema,  # the identity may lie there (``identity_of``)
        schema,
    )


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A table as a sink writes to it.

    Args:
        schema: of the batches.
        if_missing: see ``Sink``.
    """

    options: PostgresOptions
    schema: pa.Schema
    if_missing: Callable[[], None] = _never_written

    def target(self) -> ResolvedTable:
        """See ``resolve``."""
        return resolve(self.options, self.schema, self.if_missing)

    def identity(self) -> str:
        """Of the table; see ``resolve_again``."""
        return resolve_again(self.options, self.schema, self.if_missing).identity

    def altered(self) -> ResolvedTable:
        """See ``with_new_columns``; for writers whose epoch is not applied by one transaction."""
        return with_new_columns(self.options, self.schema, self.if_missing)


@dataclass(frozen=True, slots=True)
class Part:
    """An epoch's staged rows for one table."""

    table: SinkTable
    staged: tuple[Committable, ...]

    @property
    def handles(self) -> list[HandleName]:
        return [committable.handle for committable in self.staged]

    @property
    def rows(self) -> int:
        """Number of rows, dead letters included."""
        return sum(committable.rows for committable in self.staged)

    @property
    def good(self) -> int:
        """Rows without the dead ones."""
        return self.rows - sum(self.dead.values())

    @property
    def dead(self) -> dict[HandleName, int]:
        """How many rows of a handle are dead letters, where there are any."""
        own = [(c.handle, n) for c in self.staged for n in counts_of([c])]
        # Those of other sinks were given to this table as rows.
        return {handle: n.dead for handle, n in own if n.dead and n.sink == number_of(handle)}


class SinkTables:
    """The tables of one database to which one committer applies rows.

    Args:
        by_number: by the sink's number, in the order of applying: a table after those that it refers
            to. A single table takes handles of any number.
    """

    def __init__(self, by_number: Mapping[int, SinkTable]) -> None:
        self._by_number = dict(by_number)

    @property
    def options(self) -> PostgresOptions:
        """The first sink's options: server, state schema and protocol are the same for all."""
        return next(iter(self._by_number.values())).options

    def parts(self, staged: Sequence[Committable]) -> list[Part]:
        """The staged rows by table, without tables that have nothing to do.

        Raises:
            ProtocolError: a handle is of none of these sinks.
        """
        shares: dict[int, list[Committable]] = {number: [] for number in self._by_number}
        only = next(iter(shares)) if len(shares) == 1 else None
        for committable in staged:
            number = number_of(committable.handle) if only is None else only
            if number not in shares:
                raise ProtocolError(
                    f"Staged rows belong to sink number {number}, which no longer writes to this "
                    "database.",
                    handle=committable.handle,
                    remedy="run the query with that sink once more; then remove it.",
                )
            shares[number].append(committable)
        parts = [Part(self._by_number[number], tuple(share)) for number, share in shares.items()]
        # A table that is replaced has work without rows, too: it becomes empty.
        return [part for part in parts if part.staged or write_of(part.table.options).empties]
