"""What no table of the lake holds, though Spark and Parquet do; looked for at every depth."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import cast_leaf, cast_plain, is_bytes, is_list, list_parts, with_inner
from abs_sinks.refusals import BadValuesError, Code, Reason, check_utf8, refuse
from abs_sinks.text import check_years


def check_values(array: pa.Array, column: str) -> None:
    """Refuse days and moments outside of the years 1 to 9999 in UTC, and text that is not UTF-8.

    Readers of both formats fail at them, and so do the libraries that make a file's statistics.

    Args:
        array: in a plain type.

    Raises:
        BadValuesError: of the column's rows; they are not told for values inside of others.
    """
    kind = array.type
    if pa.types.is_string(kind):
        check_utf8(array, column)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        check_years(array, column)
    elif pa.types.is_nested(kind):
        try:
            for part, path in _parts(array, column):
                check_values(part, path)
        except BadValuesError as error:
            raise BadValuesError(error.reason, None) from None


def _parts(array: pa.Array, column: str) -> list[tuple[pa.Array, str]]:
    kind = array.type
    if is_list(kind):
        return [(list_parts(array)[1], f"{column}[]")]
    if pa.types.is_struct(kind):
        names = [f"{column}.{field.name}" for field in kind]
        return list(zip(array.flatten() if names else [], names, strict=True))
    entries = pa.ListArray.from_arrays(array.offsets, _entries(array), mask=array.is_null())
    keys, items = list_parts(entries)[1].flatten()
    return [(keys, f"{column}.key"), (items, f"{column}.value")]


def _entries(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])


def is_uuid(kind: pa.DataType) -> bool:
    """Whether it is Arrow's type for UUIDs, which not every release of it has."""
    return bool(
        isinstance(kind, pa.BaseExtensionType)
        and getattr(kind, "extension_name", "") == "arrow.uuid"
    )


def with_uuids_as_text(kind: pa.DataType) -> pa.DataType:
    """The type with text for each UUID: Spark has no other form for them."""
    return pa.string() if is_uuid(kind) else with_inner(kind, with_uuids_as_text)


def to_written(array: pa.Array, to: pa.DataType, column: str) -> pa.Array:
    """The values in the type of the file: texts and bytes become UUIDs and bytes of a fixed length.

    Raises:
        BadValuesError: one is none, or has another length.
    """
    return cast_plain(array, to, column, _leaf)


def _leaf(array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    if is_uuid(to):
        stored = _uuids(array, path) if pa.types.is_string(array.type) else array
        return pa.ExtensionArray.from_storage(to, _leaf(stored, to.storage_type, path))
    if pa.types.is_fixed_size_binary(to) and is_bytes(array.type):
        remedy = "correct or filter them in Spark"
        why = f"do not have {to.byte_width} bytes, which the table's column has"
        reason = Reason(Code.NOT_CONVERTIBLE, path, why, remedy)
        refuse(reason, pc.not_equal(pc.binary_length(array), to.byte_width))
    return cast_leaf(array, to, path)


def _uuids(array: pa.Array, path: str) -> pa.Array:
    pattern = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
    why = "are no UUIDs (8-4-4-4-12 hexadecimal digits)"
    reason = Reason(Code.MALFORMED, path, why, "correct or filter them in Spark")
    refuse(reason, pc.invert(pc.match_substring_regex(array, pattern)))
    values = [None if text is None else UUID(text).bytes for text in array.to_pylist()]
    return pa.array(values, pa.binary())
