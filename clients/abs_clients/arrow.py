"""Casts Arrow's many layouts to one plain type for each kind of value, and finds columns by name.

The plain types are null, bool, int8 to int64, float32, float64, decimal128, string, binary, date32,
time64[us], timestamp[us] without zone or in UTC, duration[us], month_day_nano_interval, list, struct
and map. A cast that would lose something is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Test = Callable[[pa.DataType], bool]


def _never(_: pa.DataType) -> bool:
    return False


# pyarrow before 16 does not have them, and Spark runtimes bring their own: then no array has them.
is_string_view: Test = getattr(pa.types, "is_string_view", _never)
is_binary_view: Test = getattr(pa.types, "is_binary_view", _never)
is_list_view: Test = getattr(pa.types, "is_list_view", _never)
is_large_list_view: Test = getattr(pa.types, "is_large_list_view", _never)


def is_text(kind: pa.DataType) -> bool:
    """Whether it holds text, in any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether it holds bytes of any length, in any layout."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or is_binary_view(kind))


PLAIN_VIEWS: dict[pa.DataType, pa.DataType] = {
    getattr(pa, view)(): plain
    for view, plain in (("string_view", pa.string()), ("binary_view", pa.binary()))
    if hasattr(pa, view)
}
"""The plain layout of each view."""


MAX_DECIMAL_DIGITS = 38

_NULL = pa.null()

_PLAIN = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    **PLAIN_VIEWS,
}


def plain_type(arrow: pa.DataType, *, null: pa.DataType = _NULL) -> pa.DataType:
    """The plain type that holds every value of ``arrow``; types without one are returned as is.

    Args:
        null: the type to take for null.
    """
    if isinstance(arrow, pa.BaseExtensionType):
        return plain_type(arrow.storage_type, null=null)
    types = pa.types
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return plain_type(arrow.value_type, null=null)
    if types.is_timestamp(arrow):
        return pa.timestamp("us", tz="UTC" if arrow.tz is not None else None)
    if types.is_time(arrow):
        return pa.time64("us")
    if types.is_duration(arrow):
        return pa.duration("us")
    if types.is_fixed_size_binary(arrow):
        return pa.binary()
    if types.is_decimal(arrow):
        digits, scale = arrow.precision - min(arrow.scale, 0), max(arrow.scale, 0)
        return pa.decimal128(digits, scale) if digits <= MAX_DECIMAL_DIGITS else arrow
    if types.is_null(arrow):
        return null
    if types.is_nested(arrow):
        return with_inner(arrow, partial(plain_type, null=null))
    return _PLAIN.get(arrow, arrow)


def with_inner(arrow: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The list, struct or map with each type inside of it changed; every field may be null."""
    if is_list(arrow):
        return pa.list_(change(arrow.value_type))
    if pa.types.is_struct(arrow):
        # Metadata stays: it tells a variant or a geometry from an ordinary struct. Under a struct that
        # is null, Spark sends null also for fields that are never null otherwise.
        fields = [field.with_type(change(field.type)) for field in arrow]
        return pa.struct([field.with_nullable(True) for field in fields])
    if pa.types.is_map(arrow):
        return pa.map_(change(arrow.key_type), change(arrow.item_type))
    return arrow


def is_list(arrow: pa.DataType) -> bool:
    """Whether values are lists, in any of Arrow's layouts."""
    types = pa.types
    return bool(
        types.is_list(arrow)
        or types.is_large_list(arrow)
        or types.is_fixed_size_list(arrow)
        or is_list_view(arrow)
        or is_large_list_view(arrow)
    )


Leaf = Callable[[pa.Array, pa.DataType, str], pa.Array]
"""Casts values that have no values inside; the third argument is the column's full path."""


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_decimal(arrow))


def _is_text(arrow: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)
    return bool(text or _is_bytes(arrow))


def _is_bytes(arrow: pa.DataType) -> bool:
    types = pa.types
    short = types.is_binary(arrow) or types.is_fixed_size_binary(arrow)
    return bool(short or types.is_large_binary(arrow) or types.is_binary_view(arrow))


def _is_wall_clock(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(arrow) and arrow.tz is None)


_Pair = tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]]


def _same(is_kind: Callable[[pa.DataType], bool]) -> _Pair:
    return is_kind, is_kind


_CASTS: tuple[_Pair, ...] = (
    _same(pa.types.is_boolean),
    _same(_is_number),
    (pa.types.is_integer, pa.types.is_floating),
    _same(pa.types.is_floating),
    _same(_is_text),
    _same(pa.types.is_date),
    (pa.types.is_date, _is_wall_clock),
    _same(pa.types.is_timestamp),
    _same(pa.types.is_time),
    _same(pa.types.is_duration),
    (pa.types.is_null, lambda to: True),
)
"""All pairs of types (from, to) that are cast; everything else is refused.

Arrow knows more casts, which change values: a timestamp to its day, integers to timestamps or
booleans, floats to decimals. In these pairs it checks each value; ``cast_leaf`` has the exception.
"""


def cast_plain(
    array: pa.Array, to: pa.DataType, path: str = "", leaf: Leaf | None = None
) -> pa.Array:
    """The same values as type ``to``, at every depth; fields of structs are found as columns are.

    A field that the values do not have is null, one that ``to`` does not have is left out.

    Args:
        path: of the column, for messages.
        leaf: casts values that are neither lists, structs nor maps; None: by the table of casts.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit (nanoseconds that microseconds cannot hold).
        pyarrow.ArrowNotImplementedError: there is no such cast.
    """
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_run_end_encoded(kind) or pa.types.is_dictionary(kind):
        return cast_plain(decoded(array), to, path, leaf)
    if kind.equals(to) and leaf is None:
        return array
    if is_list(kind) and is_list(to):
        offsets, values = list_parts(array)
        inner = cast_plain(values, to.value_type, f"{path}[]", leaf)
        plain = pa.list_(to.value_field)
        offsets = pa.array(offsets, pa.int32())
        made = pa.ListArray.from_arrays(offsets, inner, plain, mask=array.is_null())
        return made if plain.equals(to) else made.cast(to)  # Arrow 26 cuts lists of nulls in a cast
    if pa.types.is_struct(kind) and pa.types.is_struct(to):
        return _cast_struct(array, to, path, leaf)
    if pa.types.is_map(kind) and pa.types.is_map(to):
        return _cast_map(array, to, path, leaf)
    return (leaf or cast_leaf)(array, to, path)


def decoded(array: pa.Array) -> pa.Array:
    """The values of a dictionary's places, or of runs: Arrow 26 repeats no views."""
    runs = pa.types.is_run_end_encoded(array.type)
    try:
        return pc.run_end_decode(array) if runs else array.dictionary_decode()
    except pa.ArrowNotImplementedError:
        values = array.values if runs else array.dictionary
        values = cast_plain(values, plain_type(values.type))
        if runs:
            made = pa.RunEndEncodedArray.from_arrays(array.run_ends, values)
            return pc.run_end_decode(made.slice(array.offset, len(array)))
        return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()


def cast_leaf(array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    """Cast values that have none inside, by the table of casts; raises as ``cast_plain``."""
    kind = array.type
    if not kind.equals(to) and not any(is_from(kind) and is_to(to) for is_from, is_to in _CASTS):
        raise pa.ArrowNotImplementedError(
            f"{path or 'a value'} is {type_name(kind)}, not {type_name(to)}"
        )
    if pa.types.is_floating(kind) and pa.types.is_floating(to) and to.bit_width < kind.bit_width:
        raise pa.ArrowNotImplementedError(
            f"{path or 'a value'} is {type_name(kind)}; {type_name(to)} would round it"
        )
    if pa.types.is_null(kind):
        return pa.nulls(len(array), to)
    try:
        return array.cast(to)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(
            f"{path or 'a value'} is {type_name(kind)}, not {type_name(to)}: {error}"
        ) from error


def _cast_struct(array: pa.Array, to: pa.DataType, path: str, leaf: Leaf | None) -> pa.Array:
    names = array.type.names
    fields = list(array.type) and array.flatten()  # carries the struct's own nulls over
    columns = []
    for place, field in enumerate(to):
        at = f"{path}.{field.name}"
        near = [place] if names == to.names else _near(field.name, names)
        if len(near) > 1:
            raise pa.ArrowNotImplementedError(f"{at} could be any of {[names[n] for n in near]}")
        if near:
            columns.append(cast_plain(fields[near[0]], field.type, at, leaf))
        elif field.nullable:
            columns.append(pa.nulls(len(array), field.type))
        else:
            raise pa.ArrowNotImplementedError(f"{at} is missing, and is not nullable")
    if not columns:
        return pa.array([None if null else {} for null in array.is_null().to_pylist()], to)
    return pa.StructArray.from_arrays(columns, fields=list(to), mask=array.is_null())


def _cast_map(array: pa.Array, to: pa.DataType, path: str, leaf: Leaf | None) -> pa.Array:
    ends = array.offsets.to_numpy()
    first, entries = int(ends[0]), int(ends[-1] - ends[0])
    keys = cast_plain(array.keys.slice(first, entries), to.key_type, f"{path}.key", leaf)
    items = cast_plain(array.items.slice(first, entries), to.item_type, f"{path}.value", leaf)
    offsets = pa.array(ends - first, pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, items, to, mask=array.is_null())


def list_parts(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Offsets and values of lists in any layout, without Arrow's cast to one; null has no values."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    # ``flatten`` gives the values of the lists that are not null, in order; if there is none, not for
    # each type: Arrow 26 makes no empty array of lists of extension types.
    return offsets, array.flatten() if offsets[-1] else array.values.slice(0, 0)


Rows = TypeVar("Rows", bound=pa.RecordBatch | pa.Table)


def taken(rows: Rows, places: pa.Array) -> Rows:
    """The rows at these places, in this order, in any layout.

    Arrow 26 takes none of views and runs, and none of a table whose dictionaries differ and have nulls.
    """
    made: Rows
    try:
        made = rows.take(places)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        numbers = places.to_numpy(zero_copy_only=False)
        starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        parts = [rows.slice(run[0], len(run)) for run in np.split(numbers, starts[1:]) if len(run)]
        is_table = isinstance(rows, pa.Table)
        tables = parts if is_table else [pa.Table.from_batches([part]) for part in parts]
        made = rows.slice(0, 0)
        if tables:
            table = pa.concat_tables(tables)
            made = table if is_table else table.combine_chunks().to_batches()[0]
    return made


def can_cast(arrow: pa.DataType, to: pa.DataType) -> bool:
    """Whether ``cast_plain`` supports the cast."""
    try:
        cast_plain(pa.nulls(0, arrow), to)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def alike(wanted: str, names: Sequence[str]) -> list[str]:
    """The columns of the exact name, else all of that name without regard to case, as in Spark."""
    return [names[place] for place in _near(wanted, names)]


def _near(wanted: str, names: Sequence[str]) -> list[int]:
    exact = [n for n, name in enumerate(names) if name == wanted]
    return exact or [n for n, name in enumerate(names) if name.lower() == wanted.lower()]


_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.null(): "void",
}


def type_name(kind: pa.DataType) -> str:
    """The type as Spark's SQL writes it; one that Spark does not have by Arrow's name."""
    types = pa.types
    if is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if types.is_decimal(kind) and kind.precision <= MAX_DECIMAL_DIGITS:
        return f"decimal({kind.precision},{kind.scale})"
    if kind == pa.timestamp("us", kind.tz if types.is_timestamp(kind) else None):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if kind == pa.time64("us"):
        return "time"
    if kind == pa.duration("us"):
        return "interval day to second"
    return _NAMES.get(kind) or str(kind)
