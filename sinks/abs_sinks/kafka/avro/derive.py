"""An Avro schema for a column's type, as Spark's ``to_avro`` makes it; every field may be null."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from abs_clients.arrow import is_list, plain_type
from abs_sinks.refusals import MisfitError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
    pa.duration("us"): "long",
    pa.null(): "null",
}


def avro_of(arrow: pa.DataType, name: str, path: str) -> Any:
    """The schema, as JSON has it.

    Args:
        name: of a record at the top, with its namespace; records inside add their path to it.
        path: of the column, for messages.

    Raises:
        MisfitError: Avro has no such type, or a field's name is none of Avro's.
    """
    plain = plain_type(arrow)
    if plain in _PLAIN:
        return _PLAIN[plain]
    if pa.types.is_decimal128(plain):
        digits, scale = plain.precision, plain.scale
        return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
    if is_list(plain):
        return {"type": "array", "items": _optional(plain.value_type, name, f"{path}[]")}
    if pa.types.is_map(plain) and pa.types.is_string(plain.key_type):
        return {"type": "map", "values": _optional(plain.item_type, name, f"{path}{{}}")}
    if pa.types.is_struct(plain):
        fields = []
        for field in plain:
            at = f"{path}.{field.name}"
            if _NAME.fullmatch(field.name) is None:
                raise MisfitError(
                    f"{at} is no name of Avro's",
                    "rename it with letters, digits and underscores",
                )
            kind = _optional(field.type, f"{name}_{field.name}", at)
            fields.append({"name": field.name, "type": kind, "default": None})
        return {"type": "record", "name": name, "fields": fields}
    raise MisfitError(f"{path} is {arrow}, for which Avro has no type", "cast or drop it in Spark")


def _optional(arrow: pa.DataType, name: str, path: str) -> Any:
    inner = avro_of(arrow, name, path)
    return inner if inner == "null" else ["null", inner]
