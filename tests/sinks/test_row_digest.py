"""The digest of rows: the same for the same rows in any order and parts, another for other rows."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abs_core.rowdigest import RowDigest, is_row_digest, read_row_digest, shortened
from abs_sinks.rowhash import empty_digest, hash_values, row_digest

_INT64 = st.integers(-(2**63), 2**63 - 1)
_MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001
_DECIMALS = st.decimals(min_value=-(10**16), max_value=10**16, places=3)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(["x" * 127, "é" * 100])
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), _INT64),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "yes": (pa.bool_(), st.booleans()),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "price": (pa.decimal128(25, 3), _DECIMALS),
    "word": (pa.string(), _TEXT),
    "raw": (pa.binary(), st.binary(max_size=300)),
    "at": (pa.timestamp("us", "UTC"), _MOMENTS),
    "day": (pa.date32(), st.dates()),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | _INT64, max_size=4)),
    "map": (pa.map_(pa.string(), pa.int64()), st.dictionaries(_TEXT, _INT64, max_size=3)),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        st.fixed_dictionaries({"a": st.none() | _INT64, "b": st.lists(_TEXT, max_size=3)}),
    ),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | value for name, (_, value) in KINDS.items()}),
    max_size=6,
)


def batch_of(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    listed = [
        {**row, "map": None if row["map"] is None else list(row["map"].items())} for row in rows
    ]
    return pa.RecordBatch.from_pylist(listed, SCHEMA)


def hashes(values: Sequence[Any], kind: pa.DataType) -> list[int]:
    return [int(value) for value in hash_values(pa.array(values, kind))]


@settings(max_examples=50)
@given(ROWS, st.data())
def test_order_and_parts_do_not_matter(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = row_digest(batch_of(rows))
    shuffled = batch_of(data.draw(st.permutations(rows)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    bounds = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    parts = [row_digest(shuffled.slice(begin, end - begin)) for begin, end in bounds]
    assert reduce(add, parts, empty_digest(SCHEMA)) == whole
    assert read_row_digest(whole.to_text()) == whole


@settings(max_examples=50)
@given(ROWS.filter(bool), st.data())
def test_a_changed_value_changes_its_column_and_no_other(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(KINDS)))
    at = data.draw(st.integers(0, len(rows) - 1))
    value = data.draw(st.none() | KINDS[name][1])
    before, changed = (
        batch_of(rows),
        batch_of([*rows[:at], {**rows[at], name: value}, *rows[at + 1 :]]),
    )
    difference = row_digest(changed).differs_from(row_digest(before))
    same = before.column(name).equals(changed.column(name))
    if same or _is_same(rows[at][name], value):
        assert difference is None
    else:
        assert difference == f'the values of column "{name}" differ'


def _is_same(left: object, right: object) -> bool:
    """What is one value to us, and two to Arrow."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return isinstance(left, dict) and left == right


@settings(max_examples=50)
@given(ROWS)
def test_values_that_change_places_between_rows_are_seen(rows: list[dict[str, Any]]) -> None:
    rows = [{**row, "long": number, "word": f"w{number}"} for number, row in enumerate(rows)]
    turned = [{**row, "long": len(rows) - 1 - row["long"]} for row in rows]
    difference = row_digest(batch_of(turned)).differs_from(row_digest(batch_of(rows)))
    if len(rows) < 2:
        assert difference is None
    else:
        assert difference == "its columns hold the same values, in other rows than before"


NAN = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
INSTANT = dt.datetime(2026, 3, 1, 12, 0, 5, tzinfo=dt.UTC)
SAME: dict[str, list[pa.Array]] = {
    "zero": [pa.array([v], pa.float64()) for v in (0.0, -0.0)],
    "nan": [pa.array(NAN.view(np.float64)[i : i + 1]) for i in range(3)],
    "float": [pa.array([0.5], kind) for kind in (pa.float16(), pa.float32(), pa.float64())],
    "decimal": [
        pa.array([Decimal("-1.50")], kind)
        for kind in (pa.decimal128(3, 2), pa.decimal128(38, 10), pa.decimal256(60, 30))
    ],
    "integer": [
        pa.array([7], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8())
    ],
    "text": [pa.array(["añb"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    + [pa.array(["añb"]).dictionary_encode(), pa.array(["añb".encode()])],
    "long text": [pa.array(["x" * 1000], kind) for kind in (pa.string(), pa.large_string())],
    "runs": [pa.array([3, 3]), pa.RunEndEncodedArray.from_arrays([2], [3])],
    "instant": [
        pa.array([INSTANT], pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))
        for unit, zone in (("s", "UTC"), ("ms", "UTC"), ("us", "Asia/Tokyo"), ("ns", "UTC"))
    ],
    "day": [pa.array([INSTANT.date()], kind) for kind in (pa.date32(), pa.date64())],
    "time": [pa.array([INSTANT.time()], kind) for kind in (pa.time32("s"), pa.time64("us"))],
    "list": [
        pa.array([[1, None]], kind)
        for kind in (pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.int64(), 2))
    ],
    "map": [
        pa.array([entries], pa.map_(pa.string(), pa.int64()))
        for entries in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    ],
    "struct": [
        pa.array([{"a": 1, "b": None}], pa.struct(fields))
        for fields in (
            [("a", pa.int64()), ("b", pa.string())],
            [("b", pa.large_string()), ("a", pa.int16())],
        )
    ],
    "null": [
        pa.nulls(1),
        pa.nulls(1, pa.int64()),
        pa.array([None], pa.string()),
        # Under a null of either lies 5.
        pa.Array.from_buffers(pa.int64(), 1, [pa.py_buffer(b"\x00"), pa.array([5]).buffers()[1]]),
        pa.StructArray.from_arrays([pa.array([5])], ["a"], mask=pa.array([True])),
    ],
}


@pytest.mark.parametrize("arrays", SAME.values(), ids=SAME)
def test_one_value_has_one_hash_in_every_form(arrays: list[pa.Array]) -> None:
    assert len({tuple(hash_values(array).tolist()) for array in arrays}) == 1


def test_lists_without_any_value_have_the_hash_of_null() -> None:
    inner = pa.array([None], pa.list_(pa.binary(16))).cast(pa.list_(pa.uuid()))
    for kind in (pa.ListArray, pa.LargeListArray):
        offsets = pa.array([0, 0], pa.int32() if kind is pa.ListArray else pa.int64())
        lists = kind.from_arrays(offsets, inner.slice(0, 0), mask=pa.array([True]))
        assert hash_values(lists).tolist() == hash_values(pa.nulls(1)).tolist()


def test_values_that_look_alike_have_hashes_of_their_own() -> None:
    texts = [
        "",
        "\0",
        "\0" * 8,
        "\0" * 9,
        "a",
        "a\0",
        "x" * 128,
        "x" * 129,
        "ab" * 4,
        "ba" * 4,
        None,
    ]
    lists = [[], [None], [None, None], [1, 2], [2, 1], [[1]], None]
    for values, kind in (
        (texts, pa.string()),
        (lists[:5] + lists[6:], pa.list_(pa.int64())),
        ([[[1], [2]], [[1, 2]], [[], [1, 2]], [[1, 2], []]], pa.list_(pa.list_(pa.int64()))),
        ([{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": None, "b": 2}, None], _PAIR),
        ([Decimal(10) ** n for n in range(-10, 20)], pa.decimal128(38, 10)),
        ([0.0, 5e-324, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), None], pa.float64()),
        (range(1000), pa.int64()),
    ):
        found = hashes(list(values), kind)
        assert len(set(found)) == len(found), f"{kind}: two of {values} have one hash"
    nanoseconds = [0, 1, 999, 1000, 1001]
    assert len(set(hash_values(pa.array(nanoseconds, pa.timestamp("ns"))).tolist())) == 5


_PAIR = pa.struct([("a", pa.int64()), ("b", pa.int64())])


def test_what_no_sink_takes_is_told_apart_all_the_same() -> None:
    months = pa.array([(1, 2, 3), (1, 2, 4), None], pa.month_day_nano_interval())
    huge = pa.array([Decimal(10) ** 70, Decimal(10) ** 69], pa.decimal256(76, 0))
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    for array in (months, huge, union):
        assert len(set(hash_values(array).tolist())) == len(array)


def test_columns_that_came_or_went_are_named() -> None:
    one = row_digest(pa.record_batch({"a": [1], "b": [2]}))
    two = row_digest(pa.record_batch({"a": [1], "c": [2]}))
    assert two.differs_from(one) == 'it now also has column "c"'
    narrow = row_digest(pa.record_batch({"a": [1]}))
    assert narrow.differs_from(one) == 'it no longer has column "b"'
    turned = row_digest(pa.record_batch({"b": [2], "a": [1]}))
    assert turned.differs_from(one) is None
    wide = [RowDigest(0, tuple((f"c{n:02}", part) for n in range(12))) for part in (1, 2)]
    assert str(wide[0].differs_from(wide[1])).endswith('"c09" and 2 more differ')


def test_without_its_columns_a_digest_still_tells_rows_apart() -> None:
    one, two = (row_digest(pa.record_batch({"a": [value]})) for value in (1, 2))
    kept = shortened(one.to_text())
    assert kept is not None
    assert len(kept) < 50
    assert one.differs_from(read_row_digest(kept)) is None
    assert two.differs_from(read_row_digest(kept)) == "its rows have other values"
    assert shortened("sha256:ff") == "sha256:ff"
    assert shortened(None) is None


@pytest.mark.parametrize(
    "text",
    [
        "rows1:",
        "rows1:{}",
        "rows1:[]",
        'rows1:{"total":5}',
        'rows1:{"total":"5"}',
        "rows1:" + "[" * 9,
    ],
)
def test_a_damaged_digest_is_refused(text: str) -> None:
    assert is_row_digest(text)
    with pytest.raises(ValueError):
        read_row_digest(text)


def test_digests_stay_what_they_are_from_release_to_release() -> None:
    # A register keeps them: another algorithm needs another name than rows1.
    batch = pa.RecordBatch.from_pylist(
        [
            {"i": 1, "f": -0.5, "s": "abs", "d": Decimal("1.5"), "l": ["x", None], "m": [("k", 1)]},
            {"i": None, "f": None, "s": "y" * 200, "d": None, "l": [], "m": None},
        ],
        pa.schema(
            [
                ("i", pa.int64()),
                ("f", pa.float64()),
                ("s", pa.string()),
                ("d", pa.decimal128(10, 2)),
                ("l", pa.list_(pa.string())),
                ("m", pa.map_(pa.string(), pa.int32())),
            ]
        ),
    )
    assert row_digest(batch).to_text() == (
        'rows1:{"columns":{"d":"42292b100ace13ca","f":"04eff10c3dbf74a5","i":"67f32ca4ef5c5a54",'
        '"l":"aaed7fa96340d25b","m":"ae7232b4f32eaff7","s":"e4402b4da62c00b7"},'
        '"total":"1e3ef9e2e11ea65b"}'
    )
