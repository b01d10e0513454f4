"""Which values are the same, over types; and which types cannot be compared."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from abs_audit import nested
from abs_audit.families import meet, type_of
from abs_core.errors import OptionError, RowError, SchemaError
from abs_sinks.jsontext import json_text
from tests import sample
from tests.kit.random_values import SCALARS, Values, shown
from tests.planted import planted

NAN, INF = float("nan"), float("inf")
UTC_US = pa.timestamp("us", "UTC")
MIDNIGHT = datetime.fromisoformat("2024-01-01")
NOON = MIDNIGHT.replace(hour=12)

SAME: dict[str, tuple[pa.Array, pa.Array]] = {
    "nulls of no type": (pa.nulls(2), pa.array([None, None], pa.float32())),
    "integers of any width": (pa.array([1, None], pa.int8()), pa.array([1, None], pa.int64())),
    "the largest unsigned": (
        pa.array([2**64 - 1], pa.uint64()),
        pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)),
    ),
    "decimals of any scale": (
        pa.array([Decimal("1.50"), Decimal("-0.00")], pa.decimal128(10, 2)),
        pa.array([Decimal("1.5000"), Decimal(0)], pa.decimal128(38, 4)),
    ),
    "decimals without digits before the point": (
        pa.array([Decimal("0.5"), Decimal("-0.05"), Decimal(0)], pa.decimal128(2, 2)),
        pa.array([Decimal("0.5"), Decimal("-0.05"), Decimal(0)], pa.decimal128(38, 4)),
    ),
    "such decimals in a list": (
        pa.array([[Decimal("0.5"), Decimal("-0.05"), None]], pa.list_(pa.decimal128(37, 37))),
        pa.array([[Decimal("0.5"), Decimal("-0.05"), None]], pa.list_(pa.decimal128(38, 4))),
    ),
    "an integer and a decimal": (pa.array([100]), pa.array([Decimal("100.0")])),
    "floats of 32 and 64 bits": (pa.array([0.1], pa.float32()), pa.array([0.10000000149011612])),
    "any NaN": (pa.array([NAN], pa.float32()), pa.array([-NAN])),
    "both zeros": (pa.array([0.0, -0.0]), pa.array([-0.0, 0.0])),
    "infinities": (pa.array([INF, -INF], pa.float32()), pa.array([INF, -INF])),
    "an integer and a float": (pa.array([3, None]), pa.array([3.0, None])),
    "text of any layout": (pa.array(["a"]), pa.array(["a"], pa.large_string())),
    "a dictionary": (pa.array(["a", "b", "a"]).dictionary_encode(), pa.array(["a", "b", "a"])),
    "one instant in two zones": (
        pa.array([NOON], pa.timestamp("us", "Europe/Paris")),
        pa.array([NOON], pa.timestamp("ms", "Asia/Tokyo")),
    ),
    "a timestamp without a zone, in UTC": (pa.array([NOON], UTC_US), pa.array([NOON])),
    "nanoseconds that are none": (
        pa.array([1000, None], pa.timestamp("ns")),
        pa.array([1, None], UTC_US),
    ),
    "nanoseconds in a zone": (
        pa.array([1001, -1, None], pa.timestamp("ns", "Asia/Tokyo")),
        pa.array([1001, -1, None], pa.timestamp("ns")),
    ),
    "infinity, with nanoseconds beside it": (
        pa.array([2**63 - 1, -(2**63) + 1, 0], pa.timestamp("ns")),
        pa.array([2**63 - 1, -(2**63) + 1, 0], UTC_US),
    ),
    "a date and its midnight": (pa.array([date(2024, 1, 1)]), pa.array([MIDNIGHT])),
    "times of any unit": (pa.array([time(1, 2, 3)], pa.time32("s")), pa.array([time(1, 2, 3)])),
    "durations": (pa.array([90], pa.duration("s")), pa.array([90_000_000], pa.duration("us"))),
    "bytes of any layout": (pa.array([b"\0\xff"]), pa.array([b"\0\xff"], pa.binary(2))),
    "a struct with its fields in another order": (
        pa.array([{"a": 1, "b": None}, None], pa.struct({"a": pa.int64(), "b": pa.int64()})),
        pa.array([{"b": None, "a": 1}, None], pa.struct({"b": pa.int32(), "a": pa.int8()})),
    ),
    "lists of any width": (
        pa.array([[1, None], []], pa.list_(pa.int32())),
        pa.array([[1, None], []], pa.large_list(pa.int64())),
    ),
    "maps in another order": (
        pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int32())),
    ),
    "bytes in a list": (pa.array([[b"\\", b"a\xff"]]), pa.array([[b"\\", b"a\xff"]])),
    "NaN in a list": (pa.array([[NAN, -0.0]]), pa.array([[-NAN, 0.0]], pa.list_(pa.float32()))),
}
OTHER: dict[str, tuple[pa.Array, pa.Array]] = {
    "null and zero": (pa.array([None], pa.int64()), pa.array([0])),
    "null and empty text": (pa.array([None], pa.string()), pa.array([""])),
    "null and the text null": (pa.array([None], pa.string()), pa.array(["null"])),
    "null and an empty list": (
        pa.array([None], pa.list_(pa.int64())),
        pa.array([[]], pa.list_(pa.int64())),
    ),
    "one and ten": (pa.array([1]), pa.array([10])),
    "a last decimal": (
        pa.array([Decimal("0.10")]),
        pa.array([Decimal("0.100000000000000000000000000000000001")]),
    ),
    "a float that 32 bits rounded": (pa.array([0.1]), pa.array([0.1], pa.float32())),
    "upper and lower case": (pa.array(["a"]), pa.array(["A"])),
    "composed and decomposed": (pa.array(["\u00e9"]), pa.array(["e\u0301"])),
    "a nanosecond": (pa.array([1], pa.timestamp("ns")), pa.array([0], UTC_US)),
    "the year 9999 beside nanoseconds": (
        pa.array([0], pa.timestamp("ns")),
        pa.array([253_402_300_799_999_999], UTC_US),
    ),
    "an hour": (pa.array([NOON], UTC_US), pa.array([NOON.replace(hour=13)], UTC_US)),
    "a month and thirty days": (
        pa.array([(1, 0, 0)], pa.month_day_nano_interval()),
        pa.array([(0, 30, 0)], pa.month_day_nano_interval()),
    ),
    "a byte": (pa.array([b"\\x00"]), pa.array([b"\0"])),
    "a byte in a list": (pa.array([[b"\xff00"]]), pa.array([[b"\xff\0"]])),
    "list order": (pa.array([[1, 2]]), pa.array([[2, 1]])),
    "a field of a struct": (pa.array([{"a": 1, "b": 2}]), pa.array([{"a": 2, "b": 1}])),
    "a value of a map": (
        pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[]], pa.map_(pa.string(), pa.int64())),
    ),
    "text that looks like two columns": (pa.array(['a","b']), pa.array(["a"])),
}

UNCOMPARABLE: dict[str, tuple[pa.Array, pa.Array]] = {
    "text and number": (pa.array(["1"]), pa.array([1])),
    "float and decimal": (pa.array([1.0]), pa.array([Decimal(1)])),
    "boolean and number": (pa.array([True]), pa.array([1])),
    "text and bytes": (pa.array(["a"]), pa.array([b"a"])),
    "time and timestamp": (pa.array([time(1)]), pa.array([NOON])),
    "struct and list": (pa.array([{"a": 1}]), pa.array([[1]])),
    "structs with other fields": (pa.array([{"a": 1}]), pa.array([{"b": 1}])),
    "lists of text and of numbers": (pa.array([["1"]]), pa.array([[1]])),
}


def column(values: pa.Array, key: bool = False) -> pa.Table:
    return pa.table({"id": range(len(values)), "v": values})


@sample.cases(1, of="turned")
@pytest.mark.parametrize("case", SAME)
@pytest.mark.parametrize("turned", [False, True])
def test_the_same_value(case: str, turned: bool, compare: Any) -> None:
    one, other = SAME[case][::-1] if turned else SAME[case]
    report = compare(column(one), column(other), key=["id"])
    assert report.clean, report.to_dict()
    assert compare(column(one), column(other)).clean


@sample.cases(1, of="turned")
@pytest.mark.parametrize("case", OTHER)
@pytest.mark.parametrize("turned", [False, True])
def test_another_value(case: str, turned: bool, compare: Any) -> None:
    one, other = OTHER[case][::-1] if turned else OTHER[case]
    report = compare(column(one), column(other), key=["id"])
    assert report.differences.corrupted == 1
    assert set(report.differences.samples["corrupted"][0].changed) == {"v"}


@pytest.mark.parametrize("case", UNCOMPARABLE)
def test_types_that_hold_no_common_values_are_refused(case: str, compare: Any) -> None:
    one, other = UNCOMPARABLE[case]
    with pytest.raises(SchemaError, match="'v'"):
        compare(column(one), column(other), key=["id"])


def test_values_cannot_run_from_one_column_into_the_next(compare: Any) -> None:
    expected = {"id": [1, 2], "a": ["x", ""], "b": ["", "x"]}
    actual = {"id": [1, 2], "a": ["", "x"], "b": ["x", ""]}
    assert compare(expected, actual, key=["id"]).differences.corrupted == 2
    # The same multiset of texts, cut elsewhere.
    report = compare({"a": ["ab"], "b": ["c"]}, {"a": ["a"], "b": ["bc"]})
    assert report.differences.absent == 1


JSONS = {
    "a number and the same as text": ("1", '"1"'),
    "an array and an object": ("[1]", '{"0": 1}'),
    "a number and what the audit could make of it": ("1", '["number", "1"]'),
    "an array and what the audit could make of it": ("[1]", '["list", [1]]'),
    "true and one": ("true", "1"),
    "null and nothing": ('{"a": null}', "{}"),
    "a digit far behind the point": ("0.1", "0.10000000000000000000000001"),
    "cut off": ('{"a": 1}', '{"a": 1'),
}


@pytest.mark.parametrize("case", JSONS)
def test_json_documents_that_differ(case: str, compare: Any) -> None:
    for one, other in (JSONS[case], JSONS[case][::-1]):
        kinds = [pa.array([text], pa.json_()) for text in (one, other)]
        assert compare(column(kinds[0]), column(kinds[0]), key=["id"]).clean
        assert compare(column(kinds[0]), column(kinds[1]), key=["id"]).differences.corrupted == 1


def test_json_documents_that_are_the_same(compare: Any) -> None:
    one = '{"b": [1.50, "\\u00e9", null], "a": 1e2}'
    other = '{"a":100,"b":[1.5,"é",null]}'
    sides = [column(pa.array([text], pa.json_())) for text in (one, other)]
    assert compare(*sides, key=["id"]).clean


def maps_of(kind: pa.DataType) -> pa.Array:
    """A map with keys of this type, the extremes among them."""
    drawn = Values(Random(sample.seed()))
    values = [value for _ in range(99) if (value := drawn.value(kind)) is not None]
    keys = {shown(value): value for value in values if value != 0 or not pa.types.is_floating(kind)}
    return pa.array([[(key, n) for n, key in enumerate(keys.values())]], pa.map_(kind, pa.int64()))


KEYS = [kind for kind in SCALARS if kind != pa.float32()]


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_the_keys_of_a_map_are_the_same_in_json(kind: pa.DataType, compare: Any) -> None:
    """As the sinks write them: in a database's JSON, in files and in records of a topic."""
    maps = maps_of(kind)
    texts = json_text(maps, "v")
    assert compare(column(maps), column(texts.cast(pa.json_())), key=["id"]).clean
    (entries,) = maps.to_pylist()
    moved = zip(
        [key for key, _ in entries], [n for _, n in (*entries[1:], entries[0])], strict=True
    )
    other = pa.array([list(moved)], maps.type)
    changed = json_text(other, "v").cast(pa.json_())
    assert compare(column(maps), column(changed), key=["id"]).differences.corrupted == 1


def test_the_check_of_keys_sees_those_that_are_compared_as_they_are_written(compare: Any) -> None:
    with planted((nested, "_key", lambda text, common: text)):
        test_the_keys_of_a_map_are_the_same_in_json(UTC_US, compare)


def test_an_integer_that_no_float_is_equal_to_is_an_error(compare: Any) -> None:
    with pytest.raises(RowError, match="'v'"):
        compare(column(pa.array([2**53 + 1])), column(pa.array([float(2**53)])), key=["id"])


@pytest.mark.parametrize(
    "name",
    [
        "DECIMAL(38,38)[]",
        "BIT",
        "TIME WITH TIME ZONE",
        "INTERVAL[]",
        "STRUCT(a VARIANT)",
        "GEOMETRY",
    ],
)
def test_a_type_the_audit_does_not_know_has_no_family(name: str) -> None:
    assert type_of(duckdb.sqltype(name)) is None


def test_meeting_is_symmetric() -> None:
    names = (
        "TINYINT UBIGINT DECIMAL(9,2) FLOAT DOUBLE VARCHAR BLOB UUID DATE TIMESTAMP TIMESTAMP_NS"
    )
    names += " TIMESTAMPTZ TIME INTERVAL BOOLEAN JSON INT[] VARCHAR[] MAP(INT,INT)"
    types = [found for name in names.split() if (found := type_of(duckdb.sqltype(name)))]
    assert len(types) == len(names.split())
    for one in types:
        assert meet(one, one) == one
        for other in types:
            assert meet(one, other) == meet(other, one)


def test_names_match_in_any_case_if_only_one_column_can_be_meant(compare: Any) -> None:
    assert compare({"Id": [1], "V": [2]}, {"id": [1], "v": [2]}, key=["ID"]).clean


@pytest.mark.parametrize(
    ("expected", "actual", "options"),
    [
        ({"a": [1], "b": [1]}, {"a": [1]}, {}),
        ({"a": [1]}, {"a": [1], "b": [1]}, {}),
        ({"a": [1]}, {"b": [1]}, {}),
        ({"a": [1]}, {"a": [1]}, {"key": ["b"]}),
        ({"a": [1]}, {"a": [1]}, {"columns": ["b"]}),
    ],
)
def test_columns_that_one_side_lacks_are_an_error(
    expected: Any, actual: Any, options: Any, compare: Any
) -> None:
    with pytest.raises(SchemaError):
        compare(expected, actual, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"key": "id"},
        {"key": ["id", "id"]},
        {"columns": []},
        {"settle": -1},
        {"settle": NAN},
        {"samples": -1},
        {"memory_mib": 1},
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: Any, compare: Any) -> None:
    with pytest.raises(OptionError):
        compare({"id": [1]}, {"id": [1]}, **options)
