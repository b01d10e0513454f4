"""Avro by columns: what was encoded is read by fastavro, and what cannot be held is refused by name."""

from __future__ import annotations

import io
import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.avro.schema import arrow_type, parsed
from abs_core.errors import SchemaError
from abs_sinks.kafka.avro import encode as encoder
from abs_sinks.kafka.avro import leaves
from abs_sinks.kafka.avro.encode import check_fit, encode
from abs_sinks.refusals import BadValuesError, MisfitError, find_bad_rows
from tests.clients.avro.schemas import as_fastavro, records, schemas, to_write, values
from tests.planted import planted

HEADER = b"\0\0\0\0\7"


def read(schema: Any, data: bytes) -> Any:
    """A value by fastavro, which must use all the bytes."""
    stream = io.BytesIO(data)
    found = fastavro.schemaless_reader(stream, schema, None)
    assert not stream.read()
    return found


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


@given(st.data())
def test_fastavro_reads_what_was_encoded_and_would_have_written_the_same_bytes(
    data: st.DataObject,
) -> None:
    schema = data.draw(st.one_of(records(), schemas()))
    node = parsed(json.dumps(schema))
    drawn = data.draw(st.lists(st.one_of(values(node), st.none()), min_size=1, max_size=5))
    column = pa.array(drawn, arrow_type(node))
    shown = column.to_pylist()
    # A slice of a longer column: its buffers begin elsewhere.
    sliced = pa.concat_arrays([column, column]).slice(len(column) - 1, len(column))

    encoded = encode(node, column, HEADER, "value")
    again = encode(node, sliced, HEADER, "value").to_pylist()

    parsed_by_fastavro = fastavro.parse_schema(schema)
    for row, value in enumerate(shown):
        bytes_ = encoded[row].as_py()
        if value is None:
            assert bytes_ is None
            continue
        assert bytes_[:5] == HEADER
        assert read(parsed_by_fastavro, bytes_[5:]) == as_fastavro(node, value)
        assert bytes_[5:] == written(parsed_by_fastavro, to_write(node, value))
    assert again == [encoded[-1].as_py(), *encoded.to_pylist()[:-1]]


def record(*fields: Any, name: str = "Top") -> Any:
    shown = [{"name": f"f{n}", "type": each} for n, each in enumerate(fields)]
    return {"type": "record", "name": name, "fields": shown}


def struct(arrow: pa.DataType, *given: Any) -> pa.Array:
    return pa.array([{"f0": each} for each in given], pa.struct([("f0", arrow)]))


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("kind", "arrow", "named"),
    [
        ("int", pa.int64(), r"value.f0 is bigint, and the Avro schema has int.*CAST\(.* AS INT\)"),
        ("long", pa.string(), "CAST.*BIGINT"),
        ("string", pa.int32(), "value.f0 is int, and the Avro schema has string"),
        ("float", pa.float64(), "CAST.*FLOAT"),
        ("bytes", pa.string(), "binary|BINARY"),
        (DECIMAL, pa.decimal128(10, 3), r"CAST\(.* AS DECIMAL\(5, 2\)\)"),
        (MILLIS, pa.timestamp("us"), "timestamp-millis"),
        ("string", pa.month_day_nano_interval(), "month_day_nano_interval"),
        ({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32()), "keys are strings"),
        ({"type": "array", "items": "int"}, pa.list_(pa.string()), r"value.f0\[\] is string"),
        (["null", "int", "string"], pa.bool_(), "the Avro union is of int, string"),
        (record("int", name="R"), pa.struct([]), "value.f0.f0 is missing"),
        (
            record("int", name="R"),
            pa.struct([("f0", pa.int32()), ("more", pa.int32())]),
            "value.f0 has more, which the Avro schema R has not",
        ),
        (
            record("int", name="R"),
            pa.struct([("F0", pa.int32()), ("f0", pa.int32()), ("f0", pa.int32())]),
            "could be any",
        ),
    ],
)
def test_a_type_that_the_schema_cannot_hold_is_refused_by_name(
    kind: Any, arrow: pa.DataType, named: str
) -> None:
    with pytest.raises(MisfitError) as refused:
        check_fit(parsed(json.dumps(record(kind))), pa.struct([("f0", arrow)]), "value")
    assert re.search(named, f"{refused.value.reason} {refused.value.remedy}")


LONG_TEXT = {"type": "string", "logicalType": "uuid"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
NOW = datetime(2026, 11, 26, 1, 2, 3, 4, UTC)
NOTHING = {"member0": None, "member1": None}


@pytest.mark.parametrize(
    ("kind", "column", "bad", "code"),
    [
        ("int", struct(pa.int32(), 1, None, 3), [1], "null"),
        (ENUM, struct(pa.string(), "A", "B", "C"), [1, 2], "out-of-range"),
        (FIXED, struct(pa.binary(), b"ab", b"abc"), [1], "too-long"),
        (MILLIS, struct(pa.timestamp("us", "UTC"), NOW), [0], "too-precise"),
        (LONG_TEXT, struct(pa.string(), str(uuid.UUID(int=5)), "no"), [1], "malformed"),
        (
            {"type": "array", "items": "int"},
            struct(pa.list_(pa.int32()), [1], [], [1, None], [2, 3]),
            [2],
            "null",
        ),
        (
            {"type": "map", "values": ENUM},
            struct(pa.map_(pa.string(), pa.string()), [("a", "A")], [("b", "B"), ("c", "A")]),
            [1],
            "out-of-range",
        ),
        (
            ["int", "string"],
            pa.array(
                [{"f0": {**NOTHING, "member0": 1}}, {"f0": NOTHING}],
                pa.struct([("f0", pa.struct([("member0", pa.int32()), ("member1", pa.string())]))]),
            ),
            [1],
            "malformed",
        ),
    ],
)
def test_values_that_the_schema_cannot_hold_are_named_by_row(
    kind: Any, column: pa.Array, bad: list[int], code: str
) -> None:
    node = parsed(json.dumps(record(kind)))
    batch = pa.RecordBatch.from_arrays([column], ["value"])
    found = find_bad_rows(batch, lambda rows: encode(node, rows.column(0), b"", "value"))
    assert np.flatnonzero(found.which >= 0).tolist() == bad
    assert str(found.reasons[-1].code) == code


def test_text_that_is_no_utf8_is_refused() -> None:
    broken = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(BadValuesError) as refused:
        encode(parsed('"string"'), broken, b"", "value")
    assert refused.value.reason.code == "encoding"
    assert refused.value.rows is not None
    assert refused.value.rows.tolist() == [1]


def test_nanoseconds_are_named_by_row() -> None:
    node = parsed(json.dumps({"type": "long", "logicalType": "timestamp-micros"}))
    batch = pa.record_batch([pa.array([1000, 1, 2000], pa.timestamp("ns", "UTC"))], ["value"])
    found = find_bad_rows(batch, lambda rows: encode(node, rows.column(0), b"", "value"))
    assert found.which.tolist() == [-1, 0, -1]
    assert found.reasons[0].code == "not-convertible"


def test_a_field_without_a_column_is_written_as_its_default_or_null() -> None:
    schema = record("int", ["null", "string"], "string")
    schema["fields"][2]["default"] = "x"
    [found] = encode(parsed(json.dumps(schema)), struct(pa.int32(), 5), b"", "value").to_pylist()
    assert read(schema, found) == {"f0": 5, "f1": None, "f2": "x"}


def test_columns_are_found_without_regard_to_case_as_in_spark() -> None:
    column = pa.array([{"F0": 5}], pa.struct([("F0", pa.int32())]))
    [found] = encode(parsed(json.dumps(record("int"))), column, b"", "value").to_pylist()
    assert read(record("int"), found) == {"f0": 5}


@pytest.mark.parametrize("wide", [pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_any_layout_of_a_type_is_encoded(wide: pa.DataType) -> None:
    column = pa.array(["a", "b"]).cast(wide)
    assert encode(parsed('"string"'), column, b"", "value").to_pylist() == [b"\2a", b"\2b"]


UNIONS: list[tuple[Any, pa.DataType, Any]] = [
    (["string"], pa.string(), "a"),
    (["int", "long"], pa.int64(), 5),
    (["int", "string"], pa.string(), "a"),
]


@pytest.mark.parametrize(("union", "arrow", "value"), UNIONS)
def test_a_record_beside_a_tombstone_has_the_type_of_its_union(
    union: Any, arrow: pa.DataType, value: Any
) -> None:
    column = pa.array([{"f0": value}, None], pa.struct([("f0", arrow)]))
    [found, tombstone] = encode(parsed(json.dumps(record(union))), column, b"", "value").to_pylist()
    assert read(record(union), found) == {"f0": value}
    assert tombstone is None


def test_the_check_of_unions_sees_a_type_that_is_left_out() -> None:
    """A planted defect: no number of the type before the value."""
    no_number = encoder, "_index", lambda _: pa.scalar(b"", pa.binary())
    with planted(no_number, by=(AssertionError, IndexError, EOFError)):
        test_a_record_beside_a_tombstone_has_the_type_of_its_union(*UNIONS[0])


def test_what_lies_beneath_a_null_map_is_not_looked_at() -> None:
    offsets, keys = pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"])
    missing = pa.array([True, False])
    column = pa.MapArray.from_arrays(offsets, keys, pa.array([None, 1], pa.int32()), mask=missing)
    schema = ["null", {"type": "map", "values": "int"}]
    [first, found] = encode(parsed(json.dumps(schema)), column, b"", "value").to_pylist()
    assert first is None
    assert read(schema, found) == {"b": 1}


def test_one_column_is_not_written_as_two_fields() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": "int"} for n in "aA"]}
    node = parsed(json.dumps(schema))
    check_fit(node, pa.struct([("a", pa.int32()), ("A", pa.int32())]), "value")
    with pytest.raises(MisfitError) as refused:
        check_fit(node, pa.struct([("a", pa.int32())]), "value")
    assert "value.A has no column" in refused.value.reason


def test_a_default_that_its_type_does_not_have_is_named() -> None:
    schema = record("int", {"type": "fixed", "name": "F", "size": 2})
    schema["fields"][1]["default"] = "abc"
    with pytest.raises(SchemaError, match="default of the field f1"):
        encode(parsed(json.dumps(schema)), struct(pa.int32(), 5), b"", "value")


def test_a_default_may_be_a_moment_that_python_does_not_have() -> None:
    schema = record("int", {"type": "int", "logicalType": "date"})
    schema["fields"][1]["default"] = 2**31 - 1
    [found] = encode(parsed(json.dumps(schema)), struct(pa.int32(), 5), b"", "value").to_pylist()
    assert read(record("int", "int"), found) == {"f0": 5, "f1": 2**31 - 1}


def test_the_check_of_the_bytes_sees_a_length_that_is_wrong() -> None:
    """A planted defect: lengths that are one too small."""
    right = leaves.number
    with planted((leaves, "number", lambda unsigned: right(unsigned - 2))):
        [found] = encode(parsed('"string"'), pa.array(["abc"]), b"", "value").to_pylist()
        assert read("string", found) == "abc"
