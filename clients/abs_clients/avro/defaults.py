"""Defaults of fields, as values of their Arrow types."""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from abs_clients.arrow import MAX_DECIMAL_DIGITS
from abs_clients.avro.schema import (
    DAY_MICROS,
    STUMBLES,
    Field,
    Node,
    arrow_type,
    cut,
    member,
    widened,
)
from abs_core.errors import SchemaError


def default_array(field: Field) -> pa.Array:
    """A field's default as a column of one row.

    Raises:
        SchemaError: its type has no such value.
    """
    try:
        return pa.array([_default(field.node, field.default)], arrow_type(field.node))
    except (*STUMBLES, pa.ArrowException) as error:
        raise SchemaError(
            f"The default of the field {field.name} is no value of {field.node.shown}: "
            f"{cut(json.dumps(field.default))} ({error}).",
            remedy="correct the schema's default.",
        ) from error


_NO_NUMBERS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
"""Doubles that JSON cannot write as numbers, as Avro writes them."""


def _default(node: Node, json_value: Any) -> Any:
    """A default, as JSON has it, as a value of ``arrow_type``; moments are numbers, as in Arrow."""
    if json_value is None and not node.takes_null:
        raise ValueError("null")
    match node.kind:
        case "union":
            return _default_of_union(node, json_value)
        case "record":
            for field in node.fields:
                if field.name not in json_value and not field.has_default:
                    raise ValueError(f"{field.name} is missing")
            default = {f.name: json_value.get(f.name, f.default) for f in node.fields}
            return {f.name: _default(f.node, default[f.name]) for f in node.fields}
        case "array":
            return [_default(node.inner[0], item) for item in json_value]
        case "map":
            return [(key, _default(node.inner[0], item)) for key, item in json_value.items()]
        case "enum" if json_value not in node.symbols:
            raise ValueError("no symbol")
        case "bytes" | "fixed":
            data = json_value.encode("latin-1")
            if node.kind == "fixed" and len(data) != node.size:
                raise ValueError(f"not of {node.size} bytes")
            if node.logical is None:
                return data
            unscaled = int.from_bytes(data, "big", signed=True)
            return Decimal(unscaled).scaleb(-node.scale, Context(prec=MAX_DECIMAL_DIGITS))
    return _plain_default(node, json_value)


def _plain_default(node: Node, json_value: Any) -> Any:
    if node.kind in ("float", "double"):
        return float(_NO_NUMBERS.get(json_value, json_value))
    return json_value if node.logical in (None, "uuid") else _moment(node.logical, json_value)


def _default_of_union(node: Node, json_value: Any) -> Any:
    """A default of a union is one of its first type that fits, which Avro wants to be the first."""
    if json_value is None:
        return None
    at = next((n for n, branch in enumerate(node.branches) if _is_default(branch, json_value)), 0)
    value = _default(node.branches[at], json_value)
    return value if widened(node) is not None else {member(at): value}


def _is_default(node: Node, json_value: Any) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "boolean": (bool,),
        "int": (int,),
        "long": (int,),
        "float": (int, float),
        "double": (int, float),
        "array": (list,),
        "map": (dict,),
        "record": (dict,),
    }
    wanted = kinds.get(node.kind, (str,))
    if node.kind in ("float", "double") and json_value in _NO_NUMBERS:
        return True
    return isinstance(json_value, wanted) and (node.kind == "boolean") == isinstance(
        json_value, bool
    )


def _moment(logical: str, number: int) -> int:
    unit = 1000 if logical.endswith("millis") else 1
    if logical.startswith("time-") and not 0 <= number * unit < DAY_MICROS:
        raise ValueError("no time of a day")
    return number * unit
