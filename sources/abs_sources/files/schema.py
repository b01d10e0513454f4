"""Converts files' schemas and rows to types that every engine can read.

Columns match by exact name, else without regard to case (in formats that have column names). A
missing column is null. Values are cast only without loss (``cast_plain`` has the table of casts).

In CSV and JSON values are read from their text: in one form for each type, or not at all. Arrow's own
conversions take more than Spark's reader (blanks around numbers, hexadecimal numbers, 1 as true,
times without an offset), so a pattern decides first.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import Leaf, alike, cast_plain, plain_type, type_name
from abs_core.errors import RowError, SchemaError


def engine_schema(schema: pa.Schema) -> pa.Schema:
    """A file's schema in plain types, null as text; every column is nullable, as in Spark.

    Nanoseconds become microseconds.
    """
    fields = ((field.name, plain_type(field.type, null=pa.string())) for field in schema)
    return pa.schema([pa.field(*field) for field in fields])


def match(wanted: Sequence[str], there: Sequence[str], name: str) -> dict[str, str]:
    """For each wanted column the file's one, if any; raises SchemaError if two could match."""
    matches = {}
    for column in wanted:
        near = alike(column, there)
        if len(near) > 1:
            raise SchemaError(
                f"The file {name} has several columns that could be {column}: "
                f"{', '.join(dict.fromkeys(near))}.",
                remedy="name one of them exactly, by .schema(...).",
            )
        if near:
            matches[column] = near[0]
    return matches


def fit(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    columns: dict[str, str],
    name: str,
    leaf: Leaf | None = None,
) -> pa.RecordBatch:
    """The batch in exactly this schema; unchanged if it has it already.

    Raises SchemaError if a column's type cannot be cast, RowError if a value cannot.

    Args:
        columns: from ``match``.
        name: of the file.
        leaf: as of ``cast_plain``.
    """
    if batch.schema.equals(schema) and leaf is None:
        return batch
    arrays = []
    for field in schema:
        if field.name not in columns:
            if not field.nullable:
                raise SchemaError(
                    f"The file {name} has no column {field.name}.",
                    remedy="let the column be nullable in .schema(...), or correct the file.",
                )
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        arrays.append(_cast(batch.column(columns[field.name]), field, name, leaf))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, field: pa.Field, name: str, leaf: Leaf | None) -> pa.Array:
    try:
        return cast_plain(array, field.type, field.name, leaf)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"The column {field.name} of the file {name} is {type_name(array.type)}; it cannot "
            f"be read as "
            f"{type_name(field.type)}: {error}.",
            remedy="give a schema that fits by .schema(...), and cast in the query.",
        ) from error
    except pa.ArrowInvalid as error:
        raise RowError(
            f"A value of the column {field.name} of the file {name} cannot be read as "
            f"{type_name(field.type)}: {error}",
            remedy="give a schema that holds it by .schema(...), and cast in the query.",
        ) from error


_NUMBER = r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_OFFSET = "(Z|[+-](0[0-9]|1[0-7])(:?[0-5][0-9])?)"

_types = pa.types
_FORMS: tuple[tuple[Callable[[pa.DataType], bool], str, str], ...] = (
    (_types.is_boolean, "(?i:true|false)", "true or false"),
    (_types.is_integer, "-?[0-9]+", "digits"),
    (_types.is_floating, f"{_NUMBER}|NaN|nan|-?(Infinity|Inf|inf)", "a number"),
    (_types.is_decimal, _NUMBER, "a number"),
    (_types.is_date, _DATE, "2026-01-02"),
    (_types.is_time, _TIME, "03:04:05"),
    (lambda to: _types.is_timestamp(to) and to.tz is not None, f"{_DATE}[T ]{_TIME}{_OFFSET}",
     "2026-01-02T03:04:05Z, with an offset"),
    (_types.is_timestamp, f"{_DATE}[T ]{_TIME}", "2026-01-02T03:04:05, without an offset"),
)  # fmt: skip


def from_text(array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    """A ``Leaf``: values of type ``to`` from texts in its form; binary has the texts' bytes.

    Raises ArrowInvalid for a text in another form, ArrowNotImplementedError for a type without one.
    """
    if array.type.equals(to) or _types.is_binary(to):
        return array.cast(to)
    for is_kind, pattern, shown in _FORMS:
        if is_kind(to):
            _require(array, f"^({pattern})$", path, shown)
            if _types.is_time(to):
                array = pc.binary_join_element_wise("1970-01-01T", array, "").cast(
                    pa.timestamp("us")
                )
            return array.cast(to)
    raise pa.ArrowNotImplementedError(
        f"no text of {path} is read as {type_name(to)}; read it as a string"
    )


def from_base64(array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    """As ``from_text``; binary is Base64, as Spark writes it into JSON."""
    if not _types.is_binary(to):
        return from_text(array, to, path)
    _require(array, _BASE64, path, "Base64")  # b64decode takes padding behind the end
    return pa.array([t if t is None else base64.b64decode(t) for t in array.to_pylist()], to)


def _require(array: pa.Array, pattern: str, path: str, shown: str) -> None:
    fits = pc.match_substring_regex(array, pattern)
    if pc.all(fits).as_py() is False:
        wrong = array.filter(pc.invert(fits))[0].as_py()
        raise pa.ArrowInvalid(f"{path} is {wrong[:80]!r}; its form is {shown}")
