"""Resolves ``write=changes`` on a table: the columns of the input by their roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from psycopg import Connection

from abs_clients.arrow import alike, type_name
from abs_clients.postgres.name import columns_of
from abs_core.errors import OptionError, SchemaError
from abs_sinks.postgres.apply.changes import Changes
from abs_sinks.postgres.apply.newcolumns import settle, types_for
from abs_sinks.postgres.apply.positions import check_shared, positions_name
from abs_sinks.postgres.apply.rows_sql import resolve_key
from abs_sinks.postgres.columns.plan import CopyPlan, plan_columns
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.columns.types import Column, PgType
from abs_sinks.postgres.options import COMMITTED_AT, PostgresOptions
from abs_sinks.refusals import MisfitError

_WHOLE = ("int2", "int4", "int8", "numeric", "pg_lsn", "uuid")
_TIMES = ("date", "time", "timetz", "timestamp", "timestamptz")
_TEXTS = ("text", "varchar", "bpchar")
_BYTEWISE = ('pg_catalog."C"', 'pg_catalog."POSIX"')


def plan_changes(
    connection: Connection[Any], options: PostgresOptions, schema: pa.Schema, table: CatalogTable
) -> Changes:
    """Check that changes of this schema can be applied to the table. Reads only.

    Raises:
        SchemaError: the input does not fit, there is no place for positions, or none may be there.
    """
    names = [column.name for column in table.columns]
    timed = _timed(options, schema, names)
    roles = _roles(options, schema, timed)
    excepted = [_input_column(schema, name, "exceptcolumns") for name in options.exceptcolumns]
    extra = [name for name in roles if name in excepted or not alike(name, names)]
    dropped = [name for name in excepted if name not in roles]
    seen, added, ignored = settle(connection, options, schema, table, [*roles, *dropped])
    kinds = _types_of(connection, [schema.field(name) for name in extra])
    plan = plan_columns(schema, _with(seen, kinds), added=added, left_out=[*dropped, *ignored])
    staged = {planned.source: planned.column for planned in plan.columns}
    sequence = [staged[name] for name in roles[-len(options.sequenceby) :]]
    side = options.positions == "side"
    lacking = [column.name for column in sequence if column.name in extra]
    if lacking and not side:
        raise SchemaError(
            f"Table {table.label} has no column for the position of its rows: "
            f"{columns_of(lacking).as_string()}. Without it an older change could overwrite a newer "
            "one.",
            remedy="ALTER TABLE ... ADD COLUMN for each of them, with any type that holds it; or set "
            "positions=side, which keeps the positions in a table of the state schema.",
        )
    wanted = options.key or table.primary_key
    if not wanted:
        raise SchemaError(
            f"Table {table.label} has no primary key, so changes do not say which row they change.",
            remedy="set key to the columns of a unique index, or ALTER TABLE ... ADD PRIMARY KEY.",
        )
    key = resolve_key(plan, wanted)
    not_written = {staged[name].name for name in extra}
    _check_roles(key, sequence, not_written)
    written = tuple(name for name in plan.names if name not in not_written)
    made = Changes(
        plan=_relaxed(plan, key),
        key=key,
        sequence=tuple(column.name for column in sequence),
        written=written,
        side=side,
        deletes=replace(options.applyasdeletes, column=staged[roles[0]].name),
        unchanged=None if options.unchanged is None else staged[roles[1]].name,
        place=(options.stateschema, positions_name(table.label)),
        tombstones=options.tombstones,
        left_out=(*dropped, *ignored),
        committed=None if timed is None else staged[timed].name,
        whole=all(column.name in written or column.generated for column in table.columns),
    )
    _check_types(made, staged[roles[0]])
    check_shared(connection, made)
    return made


def changed_columns(options: PostgresOptions, schema: pa.Schema) -> pa.Schema:
    """The columns that a table is created with: all but those that only say what changes.

    Positions are columns of it, unless they are kept in the side table.
    """
    roles = _roles(options, schema, _timed(options, schema))
    kept = () if options.positions == "side" else roles[-len(options.sequenceby) :]
    excepted = [_input_column(schema, name, "exceptcolumns") for name in options.exceptcolumns]
    left_out = {*roles, *excepted} - set(kept)
    return pa.schema([field for field in schema if field.name not in left_out])


def _roles(options: PostgresOptions, schema: pa.Schema, timed: str | None) -> list[str]:
    """The input's columns of operation, what is unchanged and time (if any), and of the position."""
    names = [("applyasdeletes", options.applyasdeletes.column)]
    if options.unchanged is not None:
        names.append(("unchanged", options.unchanged))
    if timed is not None:
        names.append(("committedat", timed))
    names += [("sequenceby", name) for name in options.sequenceby]
    return [_input_column(schema, name, option) for option, name in names]


def _timed(options: PostgresOptions, schema: pa.Schema, of_table: Sequence[str] = ()) -> str | None:
    """The input's column of ``committedat``, if any.

    Raises:
        SchemaError: the input has no such column, or it is no whole number.
    """
    wanted = options.committedat
    by_default = wanted == COMMITTED_AT
    # A column that the table has, too, may be the source's own, of any meaning.
    if not wanted or (by_default and (wanted not in schema.names or alike(wanted, of_table))):
        return None
    name = _input_column(schema, wanted, "committedat")
    if pa.types.is_integer(schema.field(name).type):
        return name
    raise SchemaError(
        f'committedat names the column "{name}" ({type_name(schema.field(name).type)}), which is no '
        "whole number.",
        remedy="name one with the milliseconds since 1970, as Debezium's source.ts_ms.",
    )


def _input_column(schema: pa.Schema, wanted: str, option: str) -> str:
    names = alike(wanted, schema.names)
    if len(names) != 1:
        raise SchemaError(
            f"The option {option} names the column {wanted!r}, and the input has "
            f"{'several such' if names else 'none such'}.",
            remedy=f"the input has {', '.join(schema.names)}.",
        )
    return names[0]


def _with(table: CatalogTable, extra: Mapping[str, PgType]) -> CatalogTable:
    """The table as if it had these columns."""
    names = [column.name for column in table.columns]
    shadowed = {name for wanted in extra for name in alike(wanted, names)}
    columns = [column for column in table.columns if column.name not in shadowed]
    for name, kind in extra.items():
        columns.append(Column(name, kind, collation=_BYTEWISE[0] if kind.name in _TEXTS else ""))
    return replace(table, columns=tuple(columns))


def _relaxed(plan: CopyPlan, key: Sequence[str]) -> CopyPlan:
    """The plan that takes NULL outside of the key: a delete may have no more than its key.

    The server refuses NULL in a row that is written.
    """
    columns = tuple(
        planned
        if planned.column.name in key
        else replace(planned, column=replace(planned.column, not_null=False))
        for planned in plan.columns
    )
    return replace(plan, columns=columns)


_OF_ROLES = (
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "text",
    "text[]",
    "date",
    "time",
    "timestamp",
)
"""The types of columns that only say what changes, by their labels; and timestamptz, numeric."""


def _types_of(connection: Connection[Any], fields: Sequence[pa.Field]) -> dict[str, PgType]:
    """The types in which columns are staged that the table lacks."""
    types: dict[str, PgType] = {}
    for field in fields:
        try:
            types |= types_for(connection, [field])
        except MisfitError as error:
            raise SchemaError(
                f'Column "{field.name}": {error.reason}.', remedy=f"{error.remedy}."
            ) from error
        kind = types[field.name]
        if kind.label not in (*_OF_ROLES, "timestamptz") and kind.name != "numeric":
            raise SchemaError(
                f'Column "{field.name}" ({type_name(field.type)}) can be neither an operation '
                f"nor a position.",
                remedy="cast it in Spark: to a string or boolean, or to a number or a time.",
            )
    return types


def _check_roles(key: Sequence[str], sequence: Sequence[Column], not_written: set[str]) -> None:
    """Refuse a key that is in the position, or that is not written."""
    positions = {column.name for column in sequence}
    for name in key:
        if name in positions or name in not_written:
            where = "sequenceby" if name in positions else "exceptcolumns"
            raise OptionError(
                f"The column {name} of the key is in {where}, too.",
                remedy="the key says which row changes: it is written, and is no position.",
            )


def _check_types(made: Changes, operation: Column) -> None:
    """Refuse columns whose type cannot say what changes."""
    own = {planned.column.name: planned.column.type for planned in made.plan.columns}
    collations = {planned.column.name: planned.column.collation for planned in made.plan.columns}
    for name in made.sequence:
        if own[name].name not in (*_WHOLE, *_TIMES, *_TEXTS):
            raise SchemaError(
                f'Column "{name}" {own[name].label} cannot be a position: its values have no order '
                "that is sure.",
                remedy="take integers, numeric, a date or time, pg_lsn, uuid, or text with COLLATE "
                '"C".',
            )
        if own[name].name in _TEXTS and collations[name] not in _BYTEWISE:
            raise SchemaError(
                f'The position "{name}" is text that is ordered by the rules of a language '
                f"({collations[name] or 'the default'}), other than in a source.",
                remedy=f"ALTER TABLE {made.plan.table.label} ALTER COLUMN "
                f'"{name}" TYPE text COLLATE "C"; or take a number or a time.',
            )
    values, kind = made.deletes.values, operation.type
    if (kind.name == "bool") is bool(values):
        raise SchemaError(
            f'applyasdeletes names the column "{operation.name}" {kind.label} '
            f"{'with' if values else 'without'} values.",
            remedy="a boolean column is named alone (is_deleted), another one with the values that "
            "delete (op=d).",
        )
    if made.unchanged is not None and own[made.unchanged].label != "text[]":
        raise SchemaError(
            f'Column "{made.unchanged}" {own[made.unchanged].label} does not list columns.',
            remedy="make it an array of strings: the names of the columns that a change leaves as "
            "they are.",
        )
