"""Columns become records as in Spark's own sink; what does not fit names its row."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import SchemaError
from abs_sinks.kafka.librdkafka import Failures, LibrdkafkaSender
from abs_sinks.kafka.records import (
    Digest,
    header_lists,
    most_bytes,
    plan_columns,
    records_of,
    sizes_of,
)
from abs_sinks.refusals import find_bad_rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


_LEFT_OUT = ("", None, None, -1, None, None, 0, None)
"""What ``produce`` takes for arguments that are not given."""


class Recorder:
    """Stands in for a producer: keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def produce(self, *row: Any) -> None:
        self.sent.append(row)

    def flush(self, timeout: float) -> int:
        return 0


def sent(batch: pa.RecordBatch, topic: str | None = "t") -> list[tuple[Any, ...]]:
    producer = Recorder()
    sender = LibrdkafkaSender(producer, Failures(), topic, 1.0)  # type: ignore[arg-type]
    sender.send(records_of(batch, plan_columns(batch.schema, topic)))
    rows = [row + _LEFT_OUT[len(row) :] for row in producer.sent]
    return [(t, v, k, p, ts, h) for t, v, k, p, _, _, ts, h in rows]


def test_key_and_value_may_be_text_bytes_or_null() -> None:
    batch = pa.record_batch({"key": ["ä", None, ""], "VALUE": pa.array([b"\0", None, b""])})
    assert sent(batch) == [
        ("t", b"\0", "ä".encode(), -1, 0, None),
        ("t", None, None, -1, 0, None),
        ("t", b"", b"", -1, 0, None),
    ]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.large_binary()])
def test_other_arrow_types_of_text_and_bytes_will_do(kind: pa.DataType) -> None:
    batch = pa.record_batch({"value": pa.array(["a", None]).cast(kind)})
    assert [row[1] for row in sent(batch)] == [b"a", None]


def test_partition_timestamp_and_headers_are_taken() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, dt.UTC)
    batch = pa.record_batch(
        {
            "value": ["a", "b", "c"],
            "partition": pa.array([2, None, 0], pa.int32()),
            "timestamp": pa.array([at, None, at], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []], HEADERS
            ),
        }
    )
    millis = round(at.timestamp() * 1000)
    assert [row[3:] for row in sent(batch)] == [
        (2, millis, [("h", b"1"), ("h", None)]),
        (-1, 0, None),
        (0, millis, None),
    ]


@pytest.mark.parametrize("names", [("key", "v"), ("_1", "_2"), ("value", "key"), ("same", "same")])
def test_the_fields_of_headers_are_taken_by_place_whatever_their_names(
    names: tuple[str, str],
) -> None:
    pairs = pa.StructArray.from_arrays(
        [pa.array(["h"]), pa.array([b"1"])],
        fields=[pa.field(names[0], pa.string()), pa.field(names[1], pa.binary())],
    )
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs)
    batch = pa.record_batch({"value": ["a"], "headers": headers})
    assert [row[-1] for row in sent(batch)] == [[("h", b"1")]]


@pytest.mark.parametrize("name", ["h", "abs.attempt"])
def test_what_lies_beneath_a_null_is_no_header_of_any_record(name: str) -> None:
    whole = pa.array([[("x", b"1")], [(name, b"2"), ("h", b"3")], [("y", b"4")]], HEADERS)
    headers = pa.ListArray.from_arrays(
        whole.offsets, whole.values, mask=pa.array([False, True, False])
    )
    batch = pa.record_batch({"value": ["a", "b", "c"], "headers": headers})
    assert [row[-1] for row in sent(batch)] == [[("x", b"1")], None, [("y", b"4")]]
    records = records_of(batch.slice(1), plan_columns(batch.schema, "t"))
    assert sizes_of(records).to_pylist() == [1 + 1, 1 + 1 + 4]  # the headers' number, then each


def test_slices_of_a_batch_are_sent_as_such() -> None:
    whole = pa.record_batch(
        {
            "key": ["a", "b", "c"],
            "value": ["1", "2", "3"],
            "headers": pa.array(
                [[{"key": "x", "value": b"1"}], None, [{"key": "y", "value": b"2"}]], HEADERS
            ),
        }
    )
    assert sent(whole.slice(1)) == sent(whole)[1:]
    part = records_of(whole.slice(2), plan_columns(whole.schema, "t"))
    assert part.headers is not None
    assert header_lists(part.headers) == [[("y", b"2")]]
    assert sizes_of(part).to_pylist() == [2 + 1 + 4]


def test_the_option_topic_overrides_the_column() -> None:
    batch = pa.record_batch({"value": ["a"], "topic": ["other"]})
    assert sent(batch)[0][0] == "t"
    assert sent(batch, None)[0][0] == "other"


def test_the_attempt_that_a_copied_record_brings_along_is_left_out() -> None:
    old = {"key": "abs.attempt", "value": b"of another topic"}
    mine = {"key": "k", "value": b"v"}
    headers = pa.array([None, [old], [old, mine, old], [], [mine]], HEADERS)
    whole = pa.record_batch({"value": list("abcde"), "headers": headers})
    assert [row[5] for row in sent(whole)] == [None, None, [("k", b"v")], None, [("k", b"v")]]
    assert [row[5] for row in sent(whole.slice(2, 2))] == [[("k", b"v")], None]


def test_columns_that_are_no_part_of_a_record_are_left_out_and_known() -> None:
    schema = pa.schema([("value", pa.string()), ("id", pa.int64())])
    assert plan_columns(schema, "t").left_out == ("id",)


@pytest.mark.parametrize(
    ("columns", "topic", "named"),
    [
        ({"key": pa.string()}, "t", "no column value"),
        ({"value": pa.int64()}, "t", "a string or a binary"),
        ({"value": pa.string(), "Value": pa.string()}, "t", "twice"),
        ({"value": pa.string()}, None, "option topic"),
        ({"value": pa.string(), "partition": pa.int64()}, "t", "an int"),
        ({"value": pa.string(), "headers": pa.string()}, "t", "array of struct"),
        ({"value": pa.string(), "topic": pa.int32()}, None, "a string"),
        ({"value": pa.string(), "timestamp": pa.int64()}, "t", "a timestamp"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    columns: dict[str, pa.DataType], topic: str | None, named: str
) -> None:
    with pytest.raises(SchemaError, match=named):
        plan_columns(pa.schema(list(columns.items())), topic)


@pytest.mark.parametrize(
    ("column", "types"),
    [
        ("key", ["CAST(key AS STRING)", "CAST(key AS BINARY)"]),
        ("partition", ["CAST(partition AS INT)"]),
        ("timestamp", ["CAST(timestamp AS TIMESTAMP)"]),
    ],
)
def test_a_type_that_does_not_fit_is_answered_with_the_cast_in_sql(
    column: str, types: list[str]
) -> None:
    with pytest.raises(SchemaError) as refused:
        plan_columns(pa.schema([("value", pa.string()), (column, pa.float64())]), "t")
    assert [cast for cast in types if cast not in refused.value.remedy] == []


@pytest.mark.parametrize(
    ("column", "values", "topic"),
    [
        ("topic", pa.array(["t", None]), None),
        ("partition", pa.array([0, -1], pa.int32()), "t"),
        ("timestamp", pa.array([1000, -1000], pa.timestamp("us", "UTC")), "t"),
        # librdkafka takes a time of 0 for none, and would write the time of sending.
        ("timestamp", pa.array([1000, 0], pa.timestamp("us", "UTC")), "t"),
        ("timestamp", pa.array([1000, -999], pa.timestamp("us")), "t"),
        ("headers", pa.array([None, [{"key": None, "value": b""}]], HEADERS), "t"),
    ],
)
def test_a_value_that_does_not_fit_names_its_row(
    column: str, values: pa.Array, topic: str | None
) -> None:
    batch = pa.record_batch({"value": ["a", "b"], column: values})
    columns = plan_columns(batch.schema, topic)
    bad = find_bad_rows(batch, lambda part: records_of(part, columns))
    assert (bad.which >= 0).tolist() == [False, True]
    assert [reason.column for reason in bad.reasons] == [column]


def test_equal_content_has_an_equal_digest_whatever_its_layout() -> None:
    whole = pa.record_batch({"key": ["x", None, "ab"], "value": ["1", "2", None]})
    padded = pa.record_batch({"key": ["q", "x", None, "ab"], "value": ["q", "1", "2", None]})
    assert _digest(whole) == _digest(padded.slice(1))
    shifted = pa.record_batch({"key": ["x", None, "a"], "value": ["1", "2", "b"]})
    assert _digest(whole) != _digest(shifted)


def _digest(batch: pa.RecordBatch) -> str:
    digest = Digest()
    digest.feed(records_of(batch, plan_columns(batch.schema, "t")))
    return digest.text


@pytest.mark.parametrize("keys", [["k" * 9, None, "kk"], [None, None, None], None])
@pytest.mark.parametrize("values", [["", "v" * 700, None], ["v", "vv", "vvv"], [None, None, None]])
def test_no_record_is_larger_than_the_bound_for_its_batch(
    keys: list[str | None] | None, values: list[str | None]
) -> None:
    given = {"value": pa.array(values, pa.string())}
    if keys is not None:
        given["key"] = pa.array(keys, pa.string())
    batch = pa.record_batch(given)
    for part in (batch, batch.slice(1), batch.slice(2, 1), batch.slice(3)):
        records = records_of(part, plan_columns(part.schema, "t"))
        most = most_bytes(records)
        assert most is not None
        assert all(size <= most for size in sizes_of(records).to_pylist())


def test_headers_are_not_left_out_of_a_bound() -> None:
    headers = pa.array([[{"key": "h", "value": b"x" * 900}]], HEADERS)
    part = pa.record_batch({"value": pa.array(["v"]), "headers": headers})
    assert most_bytes(records_of(part, plan_columns(part.schema, "t"))) is None
