"""Schemas that Kafka Connect wrote to Avro, in the form of its JSON converter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from abs_clients.avro.schema import Node, arrow_type, widened

CONNECT_SCHEMA = "connect"
"""Metadata of a column that has values of Kafka Connect: its schema."""

_MEANINGS = ("io.debezium.", "org.apache.kafka.connect.")
_EXACT = ("scale", "length")
"""Parameters that a value cannot be read without."""


def connect_schema(node: Node) -> Mapping[str, Any]:
    """The schema as Connect's JSON converter writes it; values are those of ``arrow_type``."""
    one = widened(node)
    if one is None:
        return {"type": "union"}
    node = one
    schema: dict[str, Any] = {"type": _TYPES.get(node.kind, node.kind)}
    if node.semantic:
        schema["name"] = node.semantic
    parameters = dict(node.parameters)
    if node.logical is not None and pa.types.is_temporal(arrow_type(node)):
        parameters["unit"] = "micros"  # the decoder makes them of all
    if parameters:
        schema["parameters"] = parameters
    if node.kind == "record":
        schema["fields"] = [{"field": f.name, **connect_schema(f.node)} for f in node.fields]
    if node.kind == "array":
        schema["items"] = connect_schema(node.inner[0])
    return schema


_TYPES = {"int": "int32", "long": "int64", "record": "struct", "fixed": "bytes", "enum": "string"}


def means_another(writer: Node, reader: Node) -> bool:
    """Whether the numbers and texts of one schema are read otherwise than those of the other."""
    meanings = (writer.semantic, reader.semantic)
    if not any(meaning.startswith(_MEANINGS) for meaning in meanings):
        return False
    exact = [{n: v for n, v in node.parameters if n in _EXACT} for node in (writer, reader)]
    return meanings[0] != meanings[1] or exact[0] != exact[1]


def dropped(writer: Node, reader: Node) -> list[str]:
    """The columns of a row that Debezium wrote, and that the reader's schema does not have."""
    rows = [_row(node) for node in (writer, reader)]
    if None in rows:
        return []
    mine, other = ({field.name for field in row.fields} for row in rows if row is not None)
    return sorted(mine - other)


def _row(node: Node) -> Node | None:
    image = next((field.node for field in node.fields if field.name == "after"), None)
    if not node.semantic.endswith(".Envelope") or image is None:
        return None
    return widened(image)
