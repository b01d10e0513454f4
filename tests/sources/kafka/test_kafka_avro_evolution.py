"""Schemas evolve by Avro's rules; fastavro, which has them too, is the witness."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.avro.registry import header_of
from abs_clients.avro.schema import arrow_type, parsed
from abs_core.errors import SchemaError
from abs_sources.kafka.avro.columns import Decoder
from tests.clients.avro.schemas import as_fastavro, to_write, values

_ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
_WIDER = {"type": "enum", "name": "E", "symbols": ["C", "B", "A"]}
_FEWER = {"type": "enum", "name": "E", "symbols": ["B"], "default": "B"}
_RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
_GROWN = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "b", "type": "string", "default": "x"}, {"name": "a", "type": "long"}],
}
_FIXED = {"type": "fixed", "name": "F", "size": 3}

TYPES: list[Any] = [
    *("boolean", "int", "long", "float", "double", "bytes", "string"),
    *(_ENUM, _WIDER, _FEWER, _RECORD, _GROWN, _FIXED),
    *(["null", "int"], ["long", "null"], ["null", "string", "int"], ["double", "null"]),
    *(["null", _RECORD], ["null", _GROWN], ["int", "long"], ["boolean", "string", _ENUM]),
    *({"type": "array", "items": each} for each in ("int", "double", _RECORD, ["null", "long"])),
    *({"type": "map", "values": each} for each in ("int", "long", _GROWN)),
]


def top(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Top", "fields": [{"name": "x", "type": kind, **more}]}


def read(writer: Any, reader: Any, value: Any) -> tuple[pa.Array, Any]:
    """A value of the writer's schema as the decoder reads it, which fastavro has written."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), value)
    node = parsed(json.dumps(writer))
    column = pa.array([header_of(3) + stream.getvalue()], pa.binary())
    return Decoder(parsed(json.dumps(reader)), lambda _: node, "value").decode(column)


@given(st.data(), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_a_value_is_read_by_another_schema_as_fastavro_reads_it(
    data: st.DataObject, one: Any, other: Any
) -> None:
    writer, reader = top(one), top(other)
    node, wanted = parsed(json.dumps(writer)), parsed(json.dumps(reader))
    drawn = pa.array([data.draw(values(node))], arrow_type(node)).to_pylist()
    given = to_write(node, drawn[0])

    found, bad = read(writer, reader, given)

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), given)
    stream.seek(0)
    expected: Any
    try:
        expected = fastavro.schemaless_reader(stream, writer, reader)
    except (fastavro.read.SchemaResolutionError, ValueError, KeyError, IndexError, TypeError):
        expected = None  # fastavro raises what it happens to stumble upon
    if expected is None:
        assert bad
        return
    if bad:
        assert given["x"] in ([], {}), "fastavro compares the items of no empty list"
        return
    mine = as_fastavro(wanted, found[0].as_py())
    if "float" in (one, other):
        assert mine["x"] == pytest.approx(expected["x"], rel=1e-6)
    else:
        assert mine == expected


@pytest.mark.parametrize(
    ("default", "kind", "value"),
    [
        (7, "long", 7),
        (None, ["null", "string"], None),
        ("a", ["string", "null"], "a"),
        ("\u00ff", "bytes", b"\xff"),
        ([1, 2], {"type": "array", "items": "int"}, [1, 2]),
        ({"k": 1.5}, {"type": "map", "values": "double"}, [("k", 1.5)]),
        ({"a": 1}, _RECORD, {"a": 1}),
        ({"a": 1}, _GROWN, {"b": "x", "a": 1}),
        ("B", _ENUM, "B"),
        ("abc", _FIXED, b"abc"),
        (True, ["boolean", "string"], {"member0": True, "member1": None}),
    ],
)
def test_a_field_that_was_not_written_has_the_readers_default(
    default: Any, kind: Any, value: Any
) -> None:
    reader = top(kind, default=default)

    found, bad = read({"type": "record", "name": "Top", "fields": []}, reader, {})

    assert (found.to_pylist(), bad) == ([{"x": value}], {})


def test_a_renamed_field_and_record_are_found_by_their_aliases() -> None:
    reader = {
        "type": "record",
        "name": "New",
        "aliases": ["Top"],
        "fields": [{"name": "y", "type": "long", "aliases": ["x"]}],
    }
    found, bad = read(top("int"), reader, {"x": 5})
    assert (found.to_pylist(), bad) == ([{"y": 5}], {})


_DATE = {"type": "int", "logicalType": "date"}
_TIME = {"type": "int", "logicalType": "time-millis"}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}


def test_a_default_may_be_a_moment_that_python_does_not_have() -> None:
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [
        {"name": "y", "type": _DATE, "default": -(2**31)},
        {"name": "z", "type": micros, "default": 2**63 - 1},
    ]
    found, bad = read(top("int"), {**top("int"), "fields": fields}, {"x": 0})
    assert bad == {}
    assert found.field(0).view(pa.int32()).to_pylist() == [-(2**31)]
    assert found.field(1).view(pa.int64()).to_pylist() == [2**63 - 1]


@pytest.mark.parametrize(
    ("default", "kind"),
    [
        (2**40, "int"),
        (2**70, "long"),
        (2**40, _DATE),
        (-1, _TIME),
        (86_400_000, _TIME),
        ("\u0100", "bytes"),
        ("ab", _FIXED),
        ("Z", _ENUM),
        ("\u0010\u0000", _DECIMAL),
        ({}, _RECORD),
        ({"a": None}, _RECORD),
        ({"k": "x"}, {"type": "map", "values": "int"}),
        ([None], {"type": "array", "items": "int"}),
        ("\ud800", "string"),
    ],
)
def test_a_default_that_its_type_does_not_have_is_named(default: Any, kind: Any) -> None:
    reader = top(kind, default=default)
    _, bad = read({"type": "record", "name": "Top", "fields": []}, reader, {})
    assert "The default of the field x is no value of" in bad[0]


@pytest.mark.parametrize("turned", [False, True])
def test_a_field_that_was_written_is_read_once_though_an_alias_names_it_again(turned: bool) -> None:
    other: dict[str, Any] = {"name": "y", "type": "int", "aliases": ["x"]}
    fields: list[dict[str, Any]] = [{"name": "x", "type": "int"}, other]
    fields = fields[::-1] if turned else fields
    _, bad = read(top("int"), {**top("int"), "fields": fields}, {"x": 1})
    assert "value.y is missing" in bad[0]
    other["default"] = 9
    found, bad = read(top("int"), {**top("int"), "fields": fields}, {"x": 1})
    assert (found[0].as_py(), bad) == ({"x": 1, "y": 9}, {})


@pytest.mark.parametrize("digits", [0, True, None, "5"])
def test_a_decimal_without_digits_is_bytes(digits: Any) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": digits}
    try:
        node = parsed(json.dumps(kind))
    except SchemaError:
        return
    assert arrow_type(node) == pa.binary()


@pytest.mark.parametrize(
    ("writer", "reader", "value", "named"),
    [
        (top("string"), top("int"), {"x": "a"}, "value.x was written as string"),
        (top("int"), top("string"), {"x": 1}, "cannot be read as string"),
        (top("int"), {**top("int"), "name": "Other"}, {"x": 1}, "without that alias"),
        ({**top("int"), "fields": []}, top("int"), {}, "value.x is missing"),
        (top(["null", "int"]), top("int"), {"x": None}, "written as null"),
        (top(_ENUM), top({**_ENUM, "symbols": ["B"]}), {"x": "A"}, "nor a default"),
        (top(_FIXED), top({**_FIXED, "size": 4}), {"x": b"abc"}, "cannot be read"),
    ],
)
def test_what_the_rules_do_not_allow_is_named(
    writer: Any, reader: Any, value: Any, named: str
) -> None:
    _, bad = read(writer, reader, value)
    assert named in bad[0]


def test_times_of_another_unit_are_the_same_moment() -> None:
    millis = top({"type": "long", "logicalType": "timestamp-millis"})
    micros = top({"type": "long", "logicalType": "timestamp-micros"})
    found, bad = read(millis, micros, {"x": 1_600_000_000_123})
    assert bad == {}
    assert found[0].as_py()["x"].timestamp() == pytest.approx(1_600_000_000.123, abs=1e-6)


def test_a_schema_that_contains_itself_is_refused() -> None:
    node = {"name": "next", "type": ["null", "N"]}
    with pytest.raises(SchemaError, match="N contains itself"):
        parsed(json.dumps({"type": "record", "name": "N", "fields": [node]}))


def test_names_of_referenced_schemas_are_found() -> None:
    inner = json.dumps({**_RECORD, "name": "other.R"})
    outer = json.dumps(top("other.R"))
    assert arrow_type(parsed(outer, (inner,))) == pa.struct([("x", pa.struct([("a", pa.int32())]))])
    with pytest.raises(SchemaError, match=r"other\.R"):
        parsed(outer)
