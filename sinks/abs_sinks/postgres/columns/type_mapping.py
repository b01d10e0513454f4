"""Maps Arrow types to column types without loss, and selects the wire format.

A conversion is allowed if the column's type holds every value of the input's type exactly, or if the
other values can be detected and refused (text too long for varchar(n), a fraction that timestamp(0)
would round). All others are refused before the first row. So an instant (Spark TIMESTAMP) does not
become a local time (TIMESTAMP_NTZ), and no number a float that cannot hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from abs_clients.arrow import can_cast, is_list, plain_type, type_name
from abs_sinks.jsontext import refuse_tagged, require_json
from abs_sinks.postgres.columns.types import ARRAY_MAX_DIMENSIONS, PgType, becomes_json
from abs_sinks.refusals import MisfitError


class Wire(Enum):
    """The wire format of a column."""

    ARROW = "arrow"
    """pgpq writes the Arrow values as they are."""
    JSONB = "jsonb"
    """pgpq writes text with jsonb's version byte before it."""
    PAYLOAD = "payload"
    """The binary form is made by ``payload``, and pgpq writes those bytes."""
    TEXT = "text"
    """Only the type's text form is known: the whole COPY is then a text one."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How one column is converted.

    Args:
        plain: the plain type that the input is cast to first.
        arrow: the type it is widened to then; checks and encoders see this one.
    """

    plain: pa.DataType
    arrow: pa.DataType
    wire: Wire


def fit(arrow: pa.DataType, pg: PgType) -> Conversion:
    """The conversion of ``arrow`` to ``pg``; ``MisfitError`` if there is none without loss."""
    plain = plain_type(arrow)
    if not can_cast(arrow, plain):
        raise MisfitError(f"Arrow type {type_name(arrow)} is not supported", "cast it in Spark")
    wire, widened = _fit_plain(plain, pg)
    if not can_cast(plain, widened):
        raise MisfitError(
            f"Arrow type {type_name(arrow)} is not supported here", "cast it in Spark"
        )
    return Conversion(plain, widened, wire)


_Answer = tuple[Wire, pa.DataType]
_INT_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_INT_COLUMNS = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64()}
_DECIMAL_INTO_INT = {"int2": 4, "int4": 9, "int8": 18}
_EXACT_INT_BITS = {"float4": (pa.float32(), 16), "float8": (pa.float64(), 32)}


def _fit_plain(plain: pa.DataType, pg: PgType) -> _Answer:
    if pa.types.is_null(plain):
        return Wire.PAYLOAD, plain
    if becomes_json(plain, pg):
        require_json(plain)
        return (Wire.JSONB if pg.name == "jsonb" else Wire.ARROW), plain
    if is_list(plain):
        return _fit_list(plain, pg)
    for holds, rule in _RULES:
        if holds(plain):
            return rule(plain, pg)
    if pa.types.is_struct(plain) or pa.types.is_map(plain):
        refuse_tagged(plain)
        raise MisfitError(
            f"{type_name(plain)} does not fit {pg.label}",
            "make the column jsonb, or convert with to_json() in Spark for a text column",
        )
    raise MisfitError(f"Arrow type {type_name(plain)} is not supported", "cast it in Spark")


def _fit_integer(plain: pa.DataType, pg: PgType) -> _Answer:
    bits, column = plain.bit_width, _INT_COLUMNS.get(pg.name)
    if column is not None:
        if bits <= column.bit_width:
            return Wire.ARROW, column
        raise _lossy(plain, pg, f"values over {column.bit_width} bits would not fit")
    if pg.name in _EXACT_INT_BITS:
        column, most = _EXACT_INT_BITS[pg.name]
        if bits <= most:
            return Wire.ARROW, column
        raise _lossy(plain, pg, "large integers would be rounded")
    if pg.name == "numeric":
        return _fit_decimal(pa.decimal128(_INT_DIGITS[plain], 0), pg)
    raise _misfit(plain, pg)


def _fit_float(plain: pa.DataType, pg: PgType) -> _Answer:
    if pg.name == "float8":
        return Wire.ARROW, pa.float64()
    if pg.name == "float4":
        if pa.types.is_float32(plain):
            return Wire.ARROW, plain
        raise _lossy(plain, pg, "values would be rounded")
    if pg.name == "numeric":
        raise _lossy(plain, pg, "a binary fraction has no one decimal form")
    raise _misfit(plain, pg)


def _fit_decimal(plain: pa.DataType, pg: PgType) -> _Answer:
    if pg.name == "numeric":
        size = pg.numeric_size
        if size is None or (
            plain.scale <= size[1] and plain.precision - plain.scale <= size[0] - size[1]
        ):
            return Wire.ARROW, plain
        raise _lossy(plain, pg, "it has fewer digits before or after the point")
    if pg.name in _DECIMAL_INTO_INT and plain.scale == 0:
        if plain.precision <= _DECIMAL_INTO_INT[pg.name]:
            return Wire.ARROW, _INT_COLUMNS[pg.name]
        raise _lossy(plain, pg, "values with more digits would not fit")
    if pg.name in ("float4", "float8"):
        raise _lossy(plain, pg, "values would be rounded")
    raise _misfit(plain, pg)


# Types whose text input only PostgreSQL parses: a string is passed on as that text. So are numeric,
# dates and times, of which Spark's types do not hold all values; ``checks`` takes one form of them.
_HAS_SPARK_TYPE = frozenset({"bool", "int2", "int4", "int8", "float4", "float8", "bytea"})


_EXACT_BOUNDS = frozenset({"int2", "int4", "int8", "numeric"})


def _fit_string(plain: pa.DataType, pg: PgType) -> _Answer:
    if pg.takes_text:
        return Wire.ARROW, plain
    if pg.name == "jsonb":
        return Wire.JSONB, plain
    if pg.name == "uuid":
        return Wire.PAYLOAD, plain
    if pg.name in _HAS_SPARK_TYPE or pg.element is not None:
        raise _misfit(plain, pg)
    # What text input drops in silence, by pg_type: numbers (money, oid) are rounded or wrap around,
    # text of a fixed size (name, "char") is cut off, and so are fields that an interval does not keep.
    # The same within a range; a composite's fields have modifiers of their own (numeric(5,2) rounds).
    kept = pg.bounds or pg
    exact = pg.name == "numeric" or (pg.bounds and kept.name in _EXACT_BOUNDS)
    if kept.category == "N" and not exact:
        raise _lossy(plain, pg, "the type's text input rounds, or wraps around")
    if kept.category == "C":
        raise MisfitError(
            f"{type_name(plain)} does not fit {pg.label}: the text input of its fields may "
            f"round or cut",
            "make the column jsonb, or one column of each field",
        )
    if kept.category in ("S", "Z") and kept.size > 0:
        raise _lossy(plain, pg, "the type's text input cuts off in silence what does not fit")
    if pg.category == "T" and pg.interval_fields != _FULL_RANGE:
        raise _lossy(plain, pg, "fields that the column does not keep would be dropped")
    return Wire.TEXT, plain


def _fit_date(plain: pa.DataType, pg: PgType) -> _Answer:
    if pg.name == "date":
        return Wire.ARROW, plain
    if pg.name == "timestamp":
        return Wire.ARROW, pa.timestamp("us")
    if pg.name == "timestamptz":
        raise MisfitError(
            f"date does not fit {pg.label}: which moment it is depends on a time zone",
            "cast it to TIMESTAMP in Spark, where the session's time zone is known",
        )
    raise _misfit(plain, pg)


def _fit_timestamp(plain: pa.DataType, pg: PgType) -> _Answer:
    moment = plain.tz is not None
    if pg.name == ("timestamptz" if moment else "timestamp"):
        return Wire.ARROW, plain
    if pg.name == "timestamp":
        raise MisfitError(
            f"a moment (Spark TIMESTAMP) does not fit {pg.label}, a wall clock without a zone",
            "make the column timestamptz, or cast to TIMESTAMP_NTZ in Spark, "
            "which fixes the time zone",
        )
    if pg.name == "timestamptz":
        raise MisfitError(
            f"a wall clock (Spark TIMESTAMP_NTZ) does not fit {pg.label}, a moment",
            "make the column timestamp, or cast to TIMESTAMP in Spark, which fixes the time zone",
        )
    if pg.name in ("date", "time"):
        raise _lossy(plain, pg, "a part of it would be dropped")
    raise _misfit(plain, pg)


# timestamp.h: MONTH 1, YEAR 2, DAY 3, HOUR 10, MINUTE 11, SECOND 12.
_FULL_RANGE, _SECOND = 0x7FFF, 1 << 12


def _fit_interval(plain: pa.DataType, pg: PgType) -> _Answer:
    if pg.name != "interval":
        raise _misfit(plain, pg)
    if pa.types.is_duration(plain):
        if pg.interval_fields & _SECOND:
            return Wire.ARROW, plain
    elif pg.interval_fields == _FULL_RANGE:
        return Wire.PAYLOAD, plain
    raise _lossy(plain, pg, "fields that the column does not keep would be dropped")


def _fit_list(plain: pa.DataType, pg: PgType) -> _Answer:
    if pg.element is None:
        raise MisfitError(
            f"{type_name(plain)} does not fit {pg.label}",
            "make the column an array or jsonb, or convert with to_json() in Spark",
        )
    leaf, depth = plain, 0
    while is_list(leaf):
        leaf, depth = leaf.value_type, depth + 1
    if depth > ARRAY_MAX_DIMENSIONS:
        raise MisfitError(
            f"{type_name(plain)} has {depth} dimensions; PostgreSQL's arrays have "
            f"{ARRAY_MAX_DIMENSIONS}",
            "make the column jsonb",
        )
    wire, widened = _fit_plain(leaf, pg.element)
    for _ in range(depth):
        widened = pa.list_(widened)
    return (Wire.TEXT if wire is Wire.TEXT else Wire.PAYLOAD), widened


def _only(**wires: Wire) -> Callable[[pa.DataType, PgType], _Answer]:
    """The rule of a type that fits these column types as it is, and no other."""

    def rule(plain: pa.DataType, pg: PgType) -> _Answer:
        wire = wires.get(pg.name)
        if wire is None:
            raise _misfit(plain, pg)
        return wire, plain

    return rule


_Rule = tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, PgType], _Answer]]
_RULES: tuple[_Rule, ...] = (
    (pa.types.is_boolean, _only(bool=Wire.ARROW)),
    (pa.types.is_integer, _fit_integer),
    (pa.types.is_floating, _fit_float),
    (pa.types.is_decimal128, _fit_decimal),
    (pa.types.is_string, _fit_string),
    (pa.types.is_binary, _only(bytea=Wire.ARROW, uuid=Wire.PAYLOAD)),
    (pa.types.is_date32, _fit_date),
    (pa.types.is_timestamp, _fit_timestamp),
    (pa.types.is_time64, _only(time=Wire.ARROW)),
    (pa.types.is_duration, _fit_interval),
    (lambda plain: plain.equals(pa.month_day_nano_interval()), _fit_interval),
)


_REMEDY = "change the column's type, or cast in Spark, where the loss is then your own decision"


def _lossy(plain: pa.DataType, pg: PgType, why: str) -> MisfitError:
    return MisfitError(f"{type_name(plain)} does not fit {pg.label}: {why}", _REMEDY)


def _misfit(plain: pa.DataType, pg: PgType) -> MisfitError:
    return MisfitError(
        f"{type_name(plain)} does not fit {pg.label}", "cast it in Spark, or change the column"
    )
