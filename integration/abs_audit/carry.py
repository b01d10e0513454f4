"""Converts a duckdb relation to the types of ``families``; nested values become JSON text."""

from __future__ import annotations

from collections.abc import Sequence

from duckdb import DuckDBPyRelation
from duckdb.sqltypes import DuckDBPyType

from abs_audit.contracts import PLACE
from abs_audit.families import NESTED, Family, Type, type_of
from abs_core.errors import SchemaError


def types_of(rows: DuckDBPyRelation, name: str) -> dict[str, Type]:
    """The types of all columns. Raises SchemaError for a type that the audit cannot compare."""
    types = {}
    for column, duck_type in zip(rows.columns, rows.types, strict=True):
        kind = type_of(duck_type)
        if kind is None:
            raise SchemaError(
                f"{name}: the audit cannot compare values of type {duck_type} (column {column!r}).",
                remedy="convert the column in a copy or a view.",
            )
        types[column] = kind
    return types


def carried(rows: DuckDBPyRelation, names: Sequence[str]) -> DuckDBPyRelation:
    """The columns ``names``, in that order, in the types of ``families``; ``PLACE`` is NULL if it is
    not one of the columns."""
    types = dict(zip(rows.columns, rows.types, strict=True))
    there = ", ".join(
        f"cast(null as varchar) as {quoted(PLACE)}"
        if name == PLACE and name not in types
        else _carried(name, types[name])
        for name in names
    )
    return rows.project(there)


def _carried(name: str, duck_type: DuckDBPyType) -> str:
    column = quoted(name)
    kind = type_of(duck_type)
    if kind is not None and kind.family in NESTED:
        return f"cast(to_json({_readable(column, duck_type, 0)}) as varchar)"
    if kind is not None and kind.family is Family.INTERVAL:
        return _INTERVAL.format(c=column)
    if kind is not None and kind.family is Family.UNTYPED:
        return f"cast({column} as varchar)"
    return column


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_INTERVAL = (
    "(datepart('year', {c}) * 12 + datepart('month', {c})) || ' ' || datepart('day', {c}) || ' ' || "
    "((datepart('hour', {c}) * 60 + datepart('minute', {c})) * 60000000 "
    "+ datepart('microseconds', {c}))"
)


def _readable(value: str, duck_type: DuckDBPyType, depth: int) -> str:
    """The nested value, with those leaves made readable that ``to_json`` would damage.

    Bytes become ``\\x`` and hexadecimal digits, as in PostgreSQL. A decimal gets a digit before its
    point: ``.5`` is not valid JSON.
    """
    item = f"item{depth}"
    if duck_type.id == "blob":
        return rf"'\x' || lower(hex({value}))"
    if _is_fraction(duck_type):
        return f"cast({value} as decimal(38, {dict(duck_type.children)['scale']}))"
    if not _is_spoiled(duck_type):
        return value
    if duck_type.id in ("list", "array"):
        made = _readable(item, _children(duck_type)[0][1], depth + 1)
        return f"list_transform({value}, lambda {item}: {made})"
    if duck_type.id == "map":
        (_, key), (_, inner) = _children(duck_type)
        made = (
            f"{{'key': {_readable(f'{item}.key', key, depth + 1)}, "
            f"'value': {_readable(f'{item}.value', inner, depth + 1)}}}"
        )
        entries = f"list_transform(map_entries({value}), lambda {item}: {made})"
        return f"case when {value} is not null then map_from_entries({entries}) end"
    fields = ", ".join(
        f"{quoted(name)} := {_readable(f'{value}.{quoted(name)}', inner, depth)}"
        for name, inner in _children(duck_type)
    )
    return f"case when {value} is not null then struct_pack({fields}) end"


def _is_spoiled(duck_type: DuckDBPyType) -> bool:
    inside = any(_is_spoiled(inner) for _, inner in _children(duck_type))
    return inside or duck_type.id == "blob" or _is_fraction(duck_type)


def _is_fraction(duck_type: DuckDBPyType) -> bool:
    return duck_type.id == "decimal" and len({size for _, size in duck_type.children}) == 1


def _children(duck_type: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    """Children of a nested type; empty for other types. An array's length is not a child."""
    if duck_type.id not in ("list", "array", "map", "struct"):
        return []
    return [(name, inner) for name, inner in duck_type.children if isinstance(inner, DuckDBPyType)]
