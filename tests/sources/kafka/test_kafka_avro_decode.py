"""Avro by columns: what fastavro wrote is decoded, and what is no Avro is named."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.avro.registry import header_of
from abs_clients.avro.schema import Node, arrow_type, parsed
from abs_core.errors import SchemaError
from abs_sources.kafka.avro import resolve
from abs_sources.kafka.avro.columns import Decoder
from abs_sources.kafka.avro.cursor import Cursor
from tests.clients.avro.schemas import as_fastavro, records, schemas, to_write, values
from tests.planted import planted


@pytest.fixture(scope="module", params=["places first", "an item of each"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways to read lists, whatever their number."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resolve, "_FEW_ROWS", 10**9 if request.param == "places first" else 0)
        yield request.param


def written(schema: Any, value: Any, number: int = 7) -> bytes:
    """A record in the wire format, by fastavro."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return header_of(number) + stream.getvalue()


def decoder(reader: Any, *writers: Any) -> Decoder:
    """A decoder for the writers' schemas, whose ids are 7, 8, ..."""
    known = {7 + n: parsed(json.dumps(each)) for n, each in enumerate(writers or (reader,))}

    def schema_of(number: int) -> Node:
        if number not in known:
            raise SchemaError("The registry has no such schema.")
        return known[number]

    return Decoder(parsed(json.dumps(reader)), schema_of, "value")


@given(st.data())
def test_what_fastavro_wrote_is_decoded(data: st.DataObject) -> None:
    schema = data.draw(st.one_of(records(), schemas()))
    node = parsed(json.dumps(schema))
    drawn = data.draw(st.lists(values(node), min_size=1, max_size=5))
    shown = pa.array(drawn, arrow_type(node)).to_pylist()
    by_fastavro = fastavro.parse_schema(schema)
    bytes_ = [None if v is None else written(by_fastavro, to_write(node, v)) for v in shown]

    found, bad = decoder(schema).decode(pa.array(bytes_, pa.binary()))

    assert bad == {}
    found.validate(full=True)
    assert found.type == arrow_type(node)
    assert found.to_pylist() == shown


def two(data: st.DataObject) -> tuple[Any, Node, list[Any], list[bytes]]:
    """A schema, and two values of it as Arrow has them and as records."""
    schema = data.draw(records())
    node = parsed(json.dumps(schema))
    drawn = data.draw(st.lists(values(node), min_size=2, max_size=2))
    shown = pa.array(drawn, arrow_type(node)).to_pylist()
    by_fastavro = fastavro.parse_schema(schema)
    return schema, node, shown, [written(by_fastavro, to_write(node, each)) for each in shown]


@given(st.data())
def test_each_record_that_is_cut_short_or_goes_on_is_named_and_those_beside_it_are_right(
    data: st.DataObject,
) -> None:
    schema, _, shown, (right, other) = two(data)
    cuts = [other[:at] for at in range(len(other))]
    wrong = [*cuts[:50], *cuts[-50:], other + b"\0"]
    mixed = [each for cut in wrong for each in (right, cut)]

    found, bad = decoder(schema).decode(pa.array(mixed, pa.binary()))

    assert set(bad) == set(range(1, len(mixed), 2))
    assert found[::2].to_pylist() == [shown[0]] * len(wrong)


@given(st.data())
def test_changed_bytes_are_named_or_read_as_fastavro_reads_them(data: st.DataObject) -> None:
    schema, node, shown, (right, other) = two(data)
    spoilt = bytearray(other)
    for _ in range(data.draw(st.integers(1, 3))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))

    found, bad = decoder(schema).decode(pa.array([right, bytes(spoilt), right], pa.binary()))

    assert set(bad) <= {1}
    assert [found[0].as_py(), found[2].as_py()] == [shown[0]] * 2
    if bad:
        return
    try:
        mine = as_fastavro(node, found[1].as_py())
        expected = fastavro.schemaless_reader(io.BytesIO(spoilt[5:]), schema, None)
    except (ValueError, OverflowError, pa.ArrowException):
        return  # a year that Python does not have, or text that is no UUID
    assert repr(mine) == repr(expected)  # NaN is NaN


def test_the_check_of_the_columns_sees_lists_whose_nulls_were_cut() -> None:
    """A planted defect: the cast to the type itself, which Arrow 26 gets wrong for null."""
    schema = ["null", {"type": "array", "items": "null"}]
    records = [written(schema, [None] * count) for count in (3, 0, 2)]

    def check() -> None:
        found, bad = decoder(schema).decode(pa.array(records, pa.binary()))
        assert bad == {}
        found.validate(full=True)
        assert found.to_pylist() == [[None] * 3, [], [None] * 2]

    check()
    to_the_type = (resolve, "_wider", lambda values, arrow: values.cast(arrow))
    with planted(to_the_type, by=pa.ArrowInvalid):
        check()


LONG_LISTS: list[Any] = [
    {"type": "array", "items": "string"},
    {"type": "array", "items": ["null", "long"]},
    {"type": "map", "values": {"type": "array", "items": "int"}},
    {"type": "array", "items": {"type": "array", "items": "string"}},
    {
        "type": "array",
        "items": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "string"}]},
    },
]


def _long(kind: Any, items: int) -> Any:
    """A value with a list of so many items."""
    if kind["type"] == "map":
        return {f"k{n}": [n] for n in range(items)}
    one = kind["items"]
    if isinstance(one, list):
        return [None if n % 3 else n for n in range(items)]
    if one == "string":
        return ["abc"] * items
    return [["a", "b"]] * items if one["type"] == "array" else [{"x": "abc"}] * items


def _steps(kind: Any, items: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many times numbers are read of one record with a list of so many items."""
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": kind}]}
    record = written(fastavro.parse_schema(schema), {"a": _long(kind, items)})
    steps, number = [0], Cursor.number

    def counted(self: Cursor) -> Any:
        steps[0] += 1
        return number(self)

    with monkeypatch.context() as patched:
        patched.setattr(Cursor, "number", counted)
        found, bad = decoder(schema).decode(pa.array([record], pa.binary()))
    assert bad == {}
    assert len(found[0].as_py()["a"]) == items
    return steps[0]


@pytest.mark.parametrize("kind", LONG_LISTS, ids=json.dumps)
def test_a_long_list_takes_no_more_steps_than_a_short_one(
    kind: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    short, long = (_steps(kind, items, monkeypatch) for items in (20, 2000))
    if way == "places first":
        assert long == short
    else:  # a planted defect: nobody finds the places
        assert long > 50 * short / 20


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("double", "NaN", "nan"),
        ("float", "Infinity", "inf"),
        ("double", "-Infinity", "-inf"),
        (["double", "null"], "NaN", "nan"),
    ],
)
def test_a_default_that_is_no_number_of_jsons_is_read(kind: Any, text: str, value: str) -> None:
    old = {"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}
    added = {"name": "g", "type": kind, "default": text}
    new = {**old, "fields": [*old["fields"], added]}
    record = written(fastavro.parse_schema(old), {"a": 1})
    found, bad = decoder(new, old).decode(pa.array([record], pa.binary()))
    assert (bad, repr(found[0].as_py()["g"])) == ({}, value)


NO_DECIMALS: list[Any] = [
    {"type": "bytes", "precision": 4, "scale": 6},
    {"type": "bytes", "precision": 0},
    {"type": "bytes"},
    {"type": "bytes", "precision": 4, "scale": -1},
    {"type": "bytes", "precision": "4"},
    {"type": "fixed", "name": "F", "size": 2, "precision": 5, "scale": 1},
]


@pytest.mark.parametrize("kind", NO_DECIMALS, ids=json.dumps)
def test_a_decimal_that_is_none_is_bytes(kind: Any) -> None:
    """Avro's specification: a logical type that is not valid is ignored."""
    fields = [
        {"name": "d", "type": {**kind, "logicalType": "decimal"}},
        {"name": "a", "type": "int"},
    ]
    schema = {"type": "record", "name": "T", "fields": fields}
    plain = {name: each for name, each in kind.items() if name in ("type", "name", "size")}
    plain_schema = {**schema, "fields": [{"name": "d", "type": plain}, fields[1]]}
    record = written(fastavro.parse_schema(plain_schema), {"d": b"\1\2", "a": 1})
    found, bad = decoder(schema).decode(pa.array([record], pa.binary()))
    assert (bad, found.to_pylist()) == ({}, [{"d": b"\1\2", "a": 1}])


def test_an_id_of_eight_bytes_is_told_as_what_it_is() -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}
    record = b"\0" + (7).to_bytes(8, "big") + b"\2"
    _, bad = decoder(schema).decode(pa.array([record], pa.binary()))
    assert "ids of 8 bytes" in bad[0]
