"""Columns of the input that the table lacks: refused, ignored or added (option ``schemachange``).

Where one transaction applies an epoch's rows and changes the register (``wal`` with the register in
this database), it adds them: an epoch that is not decided leaves no column behind. Otherwise a task
adds them before its first row, behind the run's fence, since a prepared ALTER TABLE would lock readers
out until it is committed. Then a column can stay of an epoch that is written again without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection, sql

from abs_clients.arrow import alike, is_list, plain_type
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import in_turn
from abs_clients.postgres.name import check_identifier
from abs_core.errors import RefusedError, SchemaError
from abs_sinks.postgres.columns.create import column_type
from abs_sinks.postgres.columns.plan import CopyPlan
from abs_sinks.postgres.columns.table import CatalogTable, read_types
from abs_sinks.postgres.columns.types import Column, PgType
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.refusals import MisfitError


def settle(
    connection: Connection[Any],
    options: PostgresOptions,
    schema: pa.Schema,
    table: CatalogTable,
    excepted: Iterable[str] = (),
) -> tuple[CatalogTable, tuple[str, ...], tuple[str, ...]]:
    """The table as it will be, its columns to add, and the input's columns to ignore.

    Args:
        excepted: columns of the input that are not looked for in the table.

    Raises:
        SchemaError: a column has no type for a new column.
    """
    names = [column.name for column in table.columns]
    new = [name for name in schema.names if name not in excepted and not alike(name, names)]
    if options.schemachange == "ignore":
        return table, (), tuple(new)
    if options.schemachange == "fail" or not new:
        return table, (), ()
    added = [Column(name, kind) for name, kind in _types(connection, schema, new).items()]
    return replace(table, columns=(*table.columns, *added)), tuple(new), ()


def types_for(connection: Connection[Any], fields: Iterable[pa.Field]) -> dict[str, PgType]:
    """The type of a new column for each of these fields, by name.

    Raises:
        MisfitError: there is none for a field.
    """
    wanted = {field.name: plain_type(field.type) for field in fields}
    labels = {name: column_type(plain) for name, plain in wanted.items()}
    modifiers = {}
    for name, plain in wanted.items():
        leaf = plain.value_type if is_list(plain) else plain
        decimal = pa.types.is_decimal128(leaf)
        modifiers[name] = (leaf.precision << 16 | leaf.scale) + 4 if decimal else -1
    return read_types(connection, {name: (labels[name], modifiers[name]) for name in wanted})


def _types(connection: Connection[Any], schema: pa.Schema, new: Sequence[str]) -> dict[str, PgType]:
    types: dict[str, PgType] = {}
    for name in new:
        check_identifier(name)
        try:
            types |= types_for(connection, [schema.field(name)])
        except MisfitError as error:
            raise SchemaError(
                f'Column "{name}" cannot be added: {error.reason}.', remedy=f"{error.remedy}."
            ) from error
    return types


def adding(plan: CopyPlan) -> sql.Composed:
    """The statement that adds the plan's new columns. It fails if one of them is there."""
    own = {planned.column.name: planned.column.type.label for planned in plan.columns}
    return sql.SQL("ALTER TABLE {} {}").format(
        plan.table.identifier,
        sql.SQL(", ").join(
            sql.SQL("ADD COLUMN {} {}").format(sql.Identifier(name), sql.SQL(own[name]))
            for name in plan.added
        ),
    )


def add_within(connection: Connection[Any], plans: Sequence[CopyPlan]) -> None:
    """Begin the transaction that applies an epoch, with ALTER TABLE as its first statement.

    The table is locked against readers until it ends; the wait for that lock is ``locktimeout``.

    Raises:
        SchemaError: the column was added since the plan; RefusedError: the role may not.
        ContentionError: the table is locked for too long.
    """
    connection.execute("BEGIN")
    for plan in plans:
        with _explained(plan):
            try:
                connection.execute(adding(plan))
            except psycopg.errors.DuplicateColumn as error:
                connection.execute("ROLLBACK")
                raise SchemaError(
                    f"Someone else has added a column to table {plan.table.label} since this process "
                    f"looked at it: {error.diag.message_primary}.",
                    remedy="the next attempt looks again: restart the query if it has stopped.",
                ) from error


def add_before(connection: Connection[Any], plan: CopyPlan) -> None:
    """Add the new columns in a transaction of their own; one session at a time.

    Raises:
        RefusedError: the role may not; ContentionError: the table is locked for too long.
    """

    there = (
        "select from pg_attribute where attrelid = %s and attname = any(%s) and not attisdropped"
    )

    def add() -> None:
        # If another task was first, it writes already: ALTER TABLE would wait for it.
        parameters = plan.table.oid, list(plan.added)
        if connection.execute(there, parameters).fetchone() is None:
            connection.execute(adding(plan))

    with _explained(plan), suppress(psycopg.errors.DuplicateColumn):
        in_turn(connection, add)


@contextmanager
def _explained(plan: CopyPlan) -> Iterator[None]:
    names = ", ".join(f'"{name}"' for name in plan.added)
    try:
        with translate_errors(f"adding the columns {names} to table {plan.table.label}"):
            yield
    except RefusedError as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            error.remedy = for_administrator(plan)
        raise


def for_administrator(plan: CopyPlan) -> str:
    """What to do for a role that may not alter the table."""
    return (
        f"let the table's owner run: {adding(plan).as_string()}; or take schemachange=ignore, which "
        "does not write them."
    )
