"""Which types hold the same values: the type families that an audit compares by value.

A relation says for each column its :class:`Type` and carries the values as the table says; nothing
else about its own type system matters to the audit.

| family | carried in the duckdb relation as | precision |
| --- | --- | --- |
| INTEGER | any integer type | 64, or 128 bits |
| DECIMAL | DECIMAL, or VARCHAR in plain notation (also NaN, Infinity) | |
| FLOAT | FLOAT, DOUBLE | 32 or 64 bits |
| BOOLEAN, DATE, UUID | BOOLEAN, DATE, UUID | |
| TEXT | VARCHAR | |
| BINARY | BLOB | |
| INSTANT | any TIMESTAMP; one without a zone is read in UTC | 6 or 9 digits of a second |
| TIME | TIME, TIME_NS | 6 or 9 |
| INTERVAL | VARCHAR: months, days and microseconds, a blank between | |
| JSON, LIST, STRUCT, MAP | VARCHAR: JSON text | |
| UNTYPED | VARCHAR: text that takes the other side's type (CSV, JSON files) | |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from duckdb.sqltypes import DuckDBPyType


class Family(StrEnum):
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TEXT = "text"
    BINARY = "binary"
    DATE = "date"
    INSTANT = "timestamp"
    TIME = "time"
    INTERVAL = "interval"
    UUID = "uuid"
    JSON = "json"
    LIST = "list"
    STRUCT = "struct"
    MAP = "map"
    UNTYPED = "untyped"


NESTED = frozenset({Family.LIST, Family.STRUCT, Family.MAP})
SEMI_STRUCTURED = NESTED | {Family.JSON}
EXACT_NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL})


@dataclass(frozen=True, slots=True)
class Type:
    """A type family and its parameters.

    Args:
        precision: see the table above; 0 where it has no meaning.
        children: (name, type) of a struct's fields, of ``element``, or of ``key`` and ``value``.
        folder: the target is partitioned by it, as in the names of folders (``day=2026-11-20``).
    """

    family: Family
    precision: int = 0
    children: tuple[tuple[str, Type], ...] = ()
    folder: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if not self.children:
            return str(self.family)
        return f"{self.family}({', '.join(f'{name} {child}' for name, child in self.children)})"


_BY_DUCKDB_NAME = {
    **dict.fromkeys(
        ("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"),
        Type(Family.INTEGER, 64),
    ),
    **dict.fromkeys(("ubigint", "hugeint", "uhugeint"), Type(Family.INTEGER, 128)),
    **dict.fromkeys(("varchar", "enum"), Type(Family.TEXT)),
    **dict.fromkeys(
        ("timestamp", "timestamp_s", "timestamp_ms", "timestamp with time zone"),
        Type(Family.INSTANT, 6),
    ),
    **dict.fromkeys(("timestamp_ns", "timestamptz_ns"), Type(Family.INSTANT, 9)),
    "null": Type(Family.UNTYPED),  # a column of nulls only
    "boolean": Type(Family.BOOLEAN),
    "float": Type(Family.FLOAT, 32),
    "double": Type(Family.FLOAT, 64),
    "decimal": Type(Family.DECIMAL),
    "blob": Type(Family.BINARY),
    "date": Type(Family.DATE),
    "time": Type(Family.TIME, 6),
    "time_ns": Type(Family.TIME, 9),
    "interval": Type(Family.INTERVAL),
    "uuid": Type(Family.UUID),
}


def type_of(duckdb_type: DuckDBPyType) -> Type | None:
    """The family of a duckdb type; None if the audit cannot compare its values."""
    name = duckdb_type.id
    if str(duckdb_type).upper() == "JSON":
        return Type(Family.JSON)
    if name in ("list", "array"):
        return _nested(Family.LIST, [("element", duckdb_type.children[0][1])])
    if name in ("struct", "map"):
        return _nested(Family(name), duckdb_type.children)
    return _BY_DUCKDB_NAME.get(name)


def _nested(family: Family, children: list[tuple[str, Any]]) -> Type | None:
    types = [(name, child) for name, inner in children if (child := type_of(inner)) is not None]
    # Inside JSON, an interval has no one text form; and duckdb cannot write .5 as a number.
    textless = any(
        child.family is Family.INTERVAL or str(inner) == "DECIMAL(38,38)"
        for (_, child), (_, inner) in zip(types, children, strict=False)
    )
    if len(types) != len(children) or textless:
        return None
    return Type(family, children=tuple(types))


_CONVERTIBLE = {
    EXACT_NUMBERS: Type(Family.DECIMAL),
    frozenset({Family.INTEGER, Family.FLOAT}): Type(Family.FLOAT, 64),
    frozenset({Family.TEXT, Family.UUID}): Type(Family.UUID),
    frozenset({Family.BINARY, Family.UUID}): Type(Family.UUID),
    frozenset({Family.TEXT, Family.JSON}): Type(Family.JSON),
}


def meet(one: Type, other: Type) -> Type | None:
    """The type in which values of both types can be compared without loss; None if there is none.

    A float is not a decimal, text is not a number. A date is the instant at which it begins in UTC.
    Symmetric.
    """
    families = frozenset({one.family, other.family})
    if Family.UNTYPED in families:
        return _typed(other if one.family is Family.UNTYPED else one)
    if one.family == other.family:
        return _within(one, other)
    if families == {Family.DATE, Family.INSTANT}:
        return Type(Family.INSTANT, max(one.precision, other.precision))
    if Family.JSON in families and families & NESTED:
        return other if one.family is Family.JSON else one
    return _CONVERTIBLE.get(families)


def _typed(other: Type) -> Type | None:
    """The type of untyped text that is compared with ``other``."""
    if other.family is Family.BINARY:
        return None  # hex or base64: the text does not say
    if other.family is Family.INTEGER:
        return Type(Family.DECIMAL)  # '517.0' is 517, '517.5' must not be rounded
    if other.family is Family.UNTYPED:
        return Type(Family.TEXT)
    return other


def _within(one: Type, other: Type) -> Type | None:
    precision = max(one.precision, other.precision)
    if not one.children and not other.children:
        return Type(one.family, precision)
    ours, theirs = dict(one.children), dict(other.children)
    if ours.keys() != theirs.keys():
        return None
    met = {name: meet(ours[name], theirs[name]) for name in ours}
    children = tuple((name, child) for name, child in met.items() if child is not None)
    return Type(one.family, precision, children) if len(children) == len(met) else None
