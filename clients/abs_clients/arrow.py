"""Casts Arrow's many layouts to one plain type for each kind of value, and finds columns by name.

The plain types are null, bool, int8 to int64, float32, float64, decimal128, string, binary, date32,
time64[us], timestamp[us] without zone or in UTC, duration[us], month_day_nano_interval, list, struct
and map. A cast that would lose something is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.layouts import PLAIN_VIEWS, is_large_list_view, is_list_view

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
    return _plain_nested(arrow, null) if types.is_nested(arrow) else _PLAIN.get(arrow, arrow)


def _plain_nested(arrow: pa.DataType, null: pa.DataType) -> pa.DataType:
    plain = partial(plain_type, null=null)
    if is_list(arrow):
        return pa.list_(plain(arrow.value_type))
    if pa.types.is_struct(arrow):
        # Metadata stays: it tells a variant or a geometry from an ordinary struct. Under a struct that
        # is null, Spark sends null also for fields that are never null otherwise.
        fields = [field.with_type(plain(field.type)) for field in arrow]
        return pa.struct([field.with_nullable(True) for field in fields])
    if pa.types.is_map(arrow):
        return pa.map_(plain(arrow.key_type), plain(arrow.item_type))
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


def cast_plain(array: pa.Array, to: pa.DataType) -> pa.Array:
    """The same values as type ``to``.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit (nanoseconds that microseconds cannot hold).
        pyarrow.ArrowNotImplementedError: there is no such cast.
    """
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        return cast_plain(pc.run_end_decode(array), to)
    if array.type.equals(to):
        return array
    return _without_list_views(array).cast(to)


def list_parts(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Offsets and values of lists in any layout, without Arrow's cast to one; null has no values."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    # ``flatten`` gives the values of the lists that are not null, in order.
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), array.flatten()


def _without_list_views(array: pa.Array) -> pa.Array:
    """The same values, lists in place of list views: Arrow's cast of those drops values (26.0.1)."""
    if not _has_list_view(array.type):
        return array
    if is_list(array.type):
        offsets, values = list_parts(array)
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), _without_list_views(values), mask=array.is_null()
        )
    if pa.types.is_struct(array.type):
        children = [_without_list_views(array.field(n)) for n in range(array.type.num_fields)]
        fields = [f.with_type(c.type) for f, c in zip(array.type, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    raise pa.ArrowNotImplementedError(f"list views inside of {array.type} cannot be cast")


def _has_list_view(arrow: pa.DataType) -> bool:
    """Whether the type is a list view, or has one inside."""
    if is_list_view(arrow) or is_large_list_view(arrow):
        return True
    if isinstance(arrow, pa.BaseExtensionType):
        return _has_list_view(arrow.storage_type)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return _has_list_view(arrow.value_type)
    return any(_has_list_view(arrow.field(n).type) for n in range(arrow.num_fields))


def can_cast(arrow: pa.DataType, to: pa.DataType) -> bool:
    """Whether ``cast_plain`` supports the cast."""
    try:
        cast_plain(pa.nulls(0, arrow), to)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def alike(wanted: str, names: Sequence[str]) -> list[str]:
    """The columns of the exact name, else all of that name without regard to case, as in Spark."""
    return [name for name in names if name == wanted] or [
        name for name in names if name.lower() == wanted.lower()
    ]
