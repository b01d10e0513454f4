"""Random pairs of schemas: a value of one, read by the other, is what Apache's reader (Java) reads."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyspark
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abs_clients.avro import defaults
from abs_clients.avro.registry import header_of
from abs_clients.avro.schema import arrow_type, parsed
from abs_core.errors import SchemaError
from abs_services.java import find_java
from abs_sources.kafka.avro.columns import Decoder
from tests.clients.avro.schemas import Schema, records, to_write, values

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).parents[2] / "kit" / "avro" / "Resolve.java"
NAMED = ("fixed", "enum", "record")
PROMOTED = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}
ADDED: list[tuple[Schema, list[Any]]] = [
    ("int", [0, -(2**31), 2**40, "7", 1.5, None]),
    ("long", [2**63 - 1, 2**63, 1.0]),
    ("double", [1, 1.5, "NaN", "Infinity", "-Infinity", "1", "nan", -0.0]),
    ("float", [1e30, 1e300, "NaN"]),
    ("string", ["", "\u00e9", 7]),
    ("bytes", ["", "\u00ff", "\u0100"]),
    ("boolean", [True, "true", 0]),
    (["null", "int"], [None, 5]),
    (["int", "null"], [5, None, "x"]),
    ({"type": "array", "items": "long"}, [[], [1, 2], {}]),
    ({"type": "map", "values": "double"}, [{}, {"k": "NaN"}, {"k": 1}, []]),
    ({"type": "enum", "name": "added.E", "symbols": ["A", "B"]}, ["A", "Z"]),
    ({"type": "fixed", "name": "added.F", "size": 2}, ["ab", "a", "\u00ff\u0000"]),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 6}, ["\u0001"]),
    ({"type": "int", "logicalType": "date"}, [0, 100_000]),
]


class Apache:
    """Apache's reader, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self, writer: Schema, reader: Schema, data: bytes) -> bytes | str:
        """The value as the reader's schema has it; a text is its error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for line in (json.dumps(writer), json.dumps(reader), data.hex()):
            self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        return answer if answer.startswith("error ") else bytes.fromhex(answer)


@pytest.fixture(scope="module")
def apache() -> Iterator[Apache]:
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    command = [str(find_java()), "-cp", str(jars), str(PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        yield Apache(run)
        run.kill()


@st.composite
def evolved(draw: st.DrawFn, schema: Schema) -> Schema:
    """Another schema for the values of this one: mostly one that Avro's rules allow."""
    if isinstance(schema, list):
        drawn = [(branch, draw(evolved(branch))) for branch in schema]
        # A union holds no other one.
        branches = [before if isinstance(after, list) else after for before, after in drawn]
        return draw(st.sampled_from([branches, branches[::-1], branches[:1], schema]))
    kind = schema if isinstance(schema, str) else schema["type"]
    way = draw(st.integers(0, 9))
    if way == 0 and kind != "null":
        return draw(st.sampled_from([["null", schema], [schema, "null"], [schema]]))
    if way < 4 and isinstance(schema, str) and schema in PROMOTED:
        return draw(st.sampled_from(PROMOTED[schema]))
    if way == 4 and kind not in NAMED:
        return draw(st.sampled_from(["int", "string", "double", "boolean"]))
    if isinstance(schema, str):
        return schema
    match kind:
        case "array":
            return {**schema, "items": draw(evolved(schema["items"]))}
        case "map":
            return {**schema, "values": draw(evolved(schema["values"]))}
        case "enum" if way < 8:
            symbols = draw(st.permutations([*schema["symbols"], "NEW"]))[: draw(st.integers(1, 4))]
            more = {"default": symbols[0]} if draw(st.booleans()) else {}
            return {**schema, "symbols": symbols, **more}
        case "record":
            return draw(evolved_record(schema))
    return schema


@st.composite
def evolved_record(draw: st.DrawFn, schema: Schema) -> Schema:
    fields = []
    for field in schema["fields"]:
        way = draw(st.integers(0, 9))
        if way == 0:
            continue
        other = {**field, "type": draw(evolved(field["type"]))}
        if way == 1:
            other |= {"name": f"{field['name']}_new", "aliases": [field["name"]]}
        fields.append(other)
    for number in range(draw(st.integers(0, 2))):
        kind, given = draw(st.sampled_from(ADDED))
        if isinstance(kind, dict) and "name" in kind:
            kind = {**kind, "name": f"{kind['name']}{draw(st.integers(0, 10**9))}"}
        more = {"default": draw(st.sampled_from(given))} if draw(st.integers(0, 4)) else {}
        fields.append({"name": f"added{number}", "type": kind, **more})
    made = {**schema, "fields": draw(st.permutations(fields))}
    if draw(st.integers(0, 9)) == 0:
        made |= {"name": f"{schema['name']}_new", "aliases": [schema["name"]]}
    return made


def ours(writer: Schema, reader: Schema, data: bytes) -> tuple[list[Any], str]:
    """What the product reads, and why it does not."""
    try:
        wanted, node = parsed(json.dumps(reader)), parsed(json.dumps(writer))
    except SchemaError as error:
        return [], str(error)
    found, bad = Decoder(wanted, lambda _: node, "value").decode(
        pa.array([header_of(7) + data], pa.binary())
    )
    return found.to_pylist(), str(bad.get(0, ""))


def compared(apache: Apache, writer: Schema, reader: Schema, data: bytes) -> str:
    """How the two differ; empty if both read the same, or neither reads it."""
    answer = apache.read(writer, reader, data)
    found, why = ours(writer, reader, data)
    if isinstance(answer, str):
        return "" if why else f"ours reads {found}, Apache's does not: {answer}"
    if why:
        return f"Apache's reads it, ours does not: {why}"
    again, because = ours(reader, reader, answer)
    return "" if repr(again) == repr(found) and not because else f"{found} is not {again} {because}"


STRICTER = (
    "The default of the field",
    "is no value of",
    "contains itself",
)
"""Words of refusals where Apache's reader takes what the specification does not allow."""


def agree(apache: Apache, data: st.DataObject) -> None:
    writer = data.draw(records())
    reader = data.draw(evolved_record(writer))
    try:
        node = parsed(json.dumps(writer))
    except SchemaError:
        return
    value = pa.array([data.draw(values(node))], arrow_type(node)).to_pylist()[0]
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), to_write(node, value))
    difference = compared(apache, writer, reader, stream.getvalue())
    if difference and not any(words in difference for words in STRICTER):
        raise AssertionError(f"{difference}\n{json.dumps(writer)}\n{json.dumps(reader)}")


@given(data=st.data())
@settings(suppress_health_check=[*HealthCheck], deadline=None)
def test_a_value_is_read_by_another_schema_as_apaches_reader_reads_it(
    apache: Apache, data: st.DataObject
) -> None:
    agree(apache, data)


def test_a_number_that_is_read_otherwise_is_found(
    apache: Apache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a default of a double that JSON has no number for is another number."""
    monkeypatch.setattr(defaults, "_NO_NUMBERS", {"NaN": "0", "Infinity": "1", "-Infinity": "2"})
    old = {"type": "record", "name": "T", "fields": []}
    added = {"name": "g", "type": "double", "default": "NaN"}
    assert "is not" in compared(apache, old, {**old, "fields": [added]}, b"")
