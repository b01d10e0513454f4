"""Nested values as JSON text: what a JSON reader gets back is what was in the batch."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_sinks.jsontext import json_text


def read(array: pa.Array) -> list[Any]:
    """JSON texts read back, numbers with a fraction as decimals, and no key given twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    texts = json_text(array, "c").to_pylist()
    return [
        None if t is None else json.loads(t, parse_float=Decimal, object_pairs_hook=unique)
        for t in texts
    ]


def one(value: Any, arrow: pa.DataType) -> str:
    """The JSON text of one scalar, inside a list."""
    text: str = json_text(pa.array([[value]], pa.list_(arrow)), "c")[0].as_py()
    return text[1:-1]


@pytest.mark.parametrize(
    ("value", "arrow", "text"),
    [
        (True, pa.bool_(), "true"),
        (-128, pa.int8(), "-128"),
        (2**63 - 1, pa.int64(), "9223372036854775807"),
        (Decimal("1.10"), pa.decimal128(5, 2), "1.10"),
        (Decimal("9" * 38), pa.decimal128(38, 0), "9" * 38),
        (Decimal("-1E-38"), pa.decimal128(38, 38), "-1E-38"),
        (1.5, pa.float64(), "1.5"),
        (0.1, pa.float32(), "0.1"),
        (1e300, pa.float64(), "1e+300"),
        (math.nan, pa.float64(), '"NaN"'),
        (math.inf, pa.float64(), '"Infinity"'),
        (-math.inf, pa.float32(), '"-Infinity"'),
        (None, pa.float64(), "null"),
        (None, pa.null(), "null"),
        ("", pa.string(), '""'),
        ('"\\/\b\f\n\r\t\x01\x1f\x7f\u2028é😀', pa.string(), None),
        (b"\x00\xff", pa.binary(), r'"\\x00ff"'),
        (b"", pa.binary(), r'"\\x"'),
        (dt.date(1, 1, 1), pa.date32(), '"0001-01-01"'),
        (dt.date(9999, 12, 31), pa.date32(), '"9999-12-31"'),
        (dt.time(1, 2, 3, 4), pa.time64("us"), '"01:02:03.000004"'),
        (253_402_300_799_999_999, pa.timestamp("us"), '"9999-12-31T23:59:59.999999"'),
        (-1, pa.timestamp("us", tz="UTC"), '"1969-12-31T23:59:59.999999Z"'),
        (dt.timedelta(hours=26, microseconds=1), pa.duration("us"), '"26:00:00.000001"'),
        (-(2**63), pa.duration("us"), '"-2562047788:00:54.775808"'),
        ((-1, 2, -3_000), pa.month_day_nano_interval(), '"-1 mons +2 days -00:00:00.000003"'),
    ],
    ids=repr,
)
def test_scalars_are_written_exactly(value: Any, arrow: pa.DataType, text: str | None) -> None:
    written = one(value, arrow)
    if text is None:
        assert json.loads(written) == value
    else:
        assert written == text


def test_nulls_inside_are_kept_and_nulls_outside_stay_null() -> None:
    struct = pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))])
    values = [{"a": None, "b": ["x", None]}, None, {"a": 1, "b": None}, {"a": 2, "b": []}]
    assert read(pa.array(values, struct)) == values


def test_maps_become_objects_with_string_keys() -> None:
    by_int = pa.map_(pa.int32(), pa.list_(pa.bool_()))
    made = read(pa.array([[(1, [True]), (-2, None)], None, []], by_int))
    assert made == [{"1": [True], "-2": None}, None, {}]
    odd = pa.map_(pa.string(), pa.null())
    assert read(pa.array([[('a"\\\n', None)]], odd)) == [{'a"\\\n': None}]


def test_entries_under_a_null_map_belong_to_nothing() -> None:
    full = pa.array([[("a", 1)], [("b", 2)], [("c", 3)]], pa.map_(pa.string(), pa.int8()))
    bitmap = pa.py_buffer(b"\x05")  # the second is null
    holed = pa.Array.from_buffers(
        full.type, 3, [bitmap, full.buffers()[1]], children=[_entries(full)]
    )
    assert read(holed) == [{"a": 1}, None, {"c": 3}]
    assert read(holed.slice(1)) == [None, {"c": 3}]


def _entries(maps: pa.MapArray) -> pa.StructArray:
    key = pa.field("key", maps.type.key_type, nullable=False)
    return pa.StructArray.from_arrays(
        [maps.keys, maps.items], fields=[key, pa.field("value", maps.type.item_type)]
    )


def test_names_of_fields_are_escaped_and_a_struct_may_be_empty() -> None:
    struct = pa.struct([('a"\\\t', pa.int8()), ("ü", pa.int8())])
    assert read(pa.array([{'a"\\\t': 1, "ü": 2}], struct)) == [{'a"\\\t': 1, "ü": 2}]
    assert read(pa.array([{}, None], pa.struct([]))) == [{}, None]


_SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))),
    (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10)),
    (pa.null(), st.none()),
]


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.lists(st.text('ab"\\ü\n', max_size=3), unique=True, max_size=3)
    return st.one_of(
        inner.map(lambda t: pa.list_(t)),
        inner.map(lambda t: pa.map_(pa.string(), t)),
        st.tuples(names, inner).map(lambda nt: pa.struct([(name, nt[1]) for name in nt[0]])),
    )


_TYPES = st.recursive(st.sampled_from([t for t, _ in _SCALARS]), _nested, max_leaves=3)


def _values(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(arrow):
        made: st.SearchStrategy[Any] = st.lists(_values(arrow.value_type), max_size=3)
    elif pa.types.is_map(arrow):
        key = st.text('xy"\\', max_size=2)
        made = st.dictionaries(key, _values(arrow.item_type), max_size=2)
    elif pa.types.is_struct(arrow):
        made = st.fixed_dictionaries({f.name: _values(f.type) for f in arrow})
    else:
        made = next(strategy for known, strategy in _SCALARS if known == arrow)
    return st.none() | made


def _for_arrow(value: Any, arrow: pa.DataType) -> Any:
    """The value as pyarrow takes it: maps as pairs."""
    if value is None:
        return None
    if pa.types.is_map(arrow):
        return [(key, _for_arrow(item, arrow.item_type)) for key, item in value.items()]
    if pa.types.is_list(arrow):
        return [_for_arrow(item, arrow.value_type) for item in value]
    if pa.types.is_struct(arrow):
        return {f.name: _for_arrow(value[f.name], f.type) for f in arrow}
    return value


@given(st.data())
def test_any_nested_value_reads_back_as_itself(data: st.DataObject) -> None:
    arrow = pa.list_(data.draw(_TYPES))
    values = data.draw(st.lists(_values(arrow), max_size=4))
    array = pa.array([_for_arrow(value, arrow) for value in values], arrow)
    assert read(array) == values
    assert read(array.slice(1)) == values[1:]
