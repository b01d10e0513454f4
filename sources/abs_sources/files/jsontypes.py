"""Reads lines of JSON objects: Arrow parses them; what it cannot read, Python reads or explains.

Arrow knows neither maps nor "NaN", nor dates and binary, which are texts (see ``from_text``).
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json

from abs_clients.arrow import is_list, type_name, with_inner

_INFINITE = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "+INF": "inf", "-Infinity": "-inf",
             "-INF": "-inf"}  # fmt: skip
"""Texts that Spark reads as floating numbers (``JacksonParser``)."""
_DECIMAL = frozenset("+-.0123456789eE")


def json_batch(lines: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The objects, one a line, in types that JSON has; other types as text.

    Raises pyarrow.ArrowInvalid for a line that is not one object in UTF-8, or does not fit the schema.
    """
    read_as = pa.schema([pa.field(f.name, _read_as(f.type)) for f in schema])
    # A return ends a line, as for Spark; in JSON it is blank.
    pieces = [line.strip(b" \t") for line in lines.replace(b"\r", b"\n").split(b"\n")]
    objects = [line for line in pieces if line]
    if "map<" not in str(read_as) and len(set(read_as.names)) == len(read_as):
        try:
            return _by_arrow(objects, read_as)
        except pa.ArrowInvalid:
            pass
    return _by_python(objects, read_as)


def _by_arrow(objects: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    # Of these Arrow makes rows without values, or dies; two in a line are two rows.
    if not all(line[:1] == b"{" and line[-1:] == b"}" for line in objects):
        raise pa.ArrowInvalid("a line is not one object")
    lines = b"\n".join(objects)
    if b"-NaN" in lines or lines.count(b"Inf") != lines.count(b"Infinity"):
        raise pa.ArrowInvalid("a number may be written as Inf, which only Arrow reads")
    pa.array([lines], pa.large_binary()).cast(
        pa.large_string()
    )  # Arrow reads JSON that is not UTF-8
    parsing = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    table = pyarrow.json.read_json(pa.BufferReader(lines), reading, parsing)
    table.validate(full=True)  # Arrow reads decimals with too many digits
    if table.num_rows != len(objects):
        raise pa.ArrowInvalid("a line has several objects")
    [batch] = table.combine_chunks().to_batches()
    return batch


def _by_python(objects: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    row_type, rows, line = pa.struct(list(schema)), [], b""
    try:
        for line in objects:
            row = json.loads(line.decode(), parse_float=Decimal, object_pairs_hook=_fields)
            if row is None:
                raise ValueError("it is null instead of a JSON object")
            rows.append(_value(row, row_type, ""))
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise pa.ArrowInvalid(f"{error}, in the line {line[:80]!r}") from error
    try:
        return pa.RecordBatch.from_struct_array(pa.array(rows, row_type))
    except (ValueError, ArithmeticError) as error:
        raise pa.ArrowInvalid(str(error)) from error


def _value(value: Any, kind: pa.DataType, path: str) -> Any:
    """The value for ``pa.array``; raises ValueError if it is of another kind."""
    types = pa.types
    if value is None:
        return None
    if types.is_struct(kind) and isinstance(value, dict):
        return {f.name: _value(value.get(f.name), f.type, f"{path}.{f.name}") for f in kind}
    if types.is_map(kind) and isinstance(value, dict):
        return [(key, _value(item, kind.item_type, f"{path}.{key}")) for key, item in value.items()]
    if is_list(kind) and isinstance(value, list):
        return [_value(item, kind.value_type, f"{path}[]") for item in value]
    if types.is_string(kind) and isinstance(value, str):
        return value
    if types.is_boolean(kind) and isinstance(value, bool):
        return value
    if not isinstance(value, bool | dict | list):
        if types.is_floating(kind) and (not isinstance(value, str) or value in _INFINITE):
            number = _INFINITE.get(value, value) if isinstance(value, str) else value
            if kind.bit_width == 64:
                return float(number)
            # By its text, as Arrow's reader does: by way of a double it would be rounded twice.
            return pa.scalar(str(number)).cast(kind).as_py()
        if types.is_integer(kind) and isinstance(value, int):
            return value
        if types.is_decimal(kind) and _DECIMAL.issuperset(str(value)):
            return Decimal(value)
    raise ValueError(f"{path[1:] or 'it'} is {str(value)[:80]!r}, not {type_name(kind)}")


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("an object has two fields of one name")
    "".join(fields).encode()  # no half of a surrogate pair
    return fields


def _read_as(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_map(kind):
        return pa.map_(pa.string(), _read_as(kind.item_type))
    if types.is_nested(kind):
        return with_inner(kind, _read_as)
    number = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return kind if number or types.is_decimal(kind) else pa.string()
