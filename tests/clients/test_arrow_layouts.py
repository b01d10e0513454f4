"""A cast to the plain type keeps every value, in each of Arrow's list layouts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.arrow import cast_plain, plain_type, taken

LISTS = st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3), max_size=6)
LAYOUTS = [pa.list_view, pa.large_list_view, pa.large_list]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@given(values=LISTS, begin=st.integers(0, 3), turned=st.booleans())
def test_lists_in_any_layout_keep_their_values(
    layout: type, values: list[list[int | None] | None], begin: int, turned: bool
) -> None:
    array = pa.array(values, layout(pa.int32()))
    if turned:  # a view's lists lie in another order than its values
        array, values = array[::-1], values[::-1]
    array, values = array[begin:], values[begin:]
    plain = cast_plain(array, plain_type(array.type))
    plain.validate(full=True)
    assert plain.type == pa.list_(pa.int32())
    assert plain.to_pylist() == values


@given(values=LISTS, begin=st.integers(0, 3))
def test_list_views_in_structs_and_lists_keep_their_values(
    values: list[list[int | None] | None], begin: int
) -> None:
    views = pa.array(values, pa.list_view(pa.int32()))
    struct = pa.StructArray.from_arrays([views], names=["a"])[begin:]
    assert cast_plain(struct, plain_type(struct.type)).to_pylist() == struct.to_pylist()
    lists = pa.array([values, None, values], pa.large_list(pa.list_view(pa.int32())))[begin:]
    assert cast_plain(lists, plain_type(lists.type)).to_pylist() == lists.to_pylist()


def test_list_views_in_maps_keep_their_values() -> None:
    """Arrow's own cast drops them."""
    nested = pa.map_(pa.string(), pa.list_view(pa.int64()))
    values = [[("a", [1, 2]), ("b", None)], None, [], [("c", [3])]]
    maps = pa.array(values, nested)
    for begin in range(len(values)):
        plain = cast_plain(maps[begin:], plain_type(nested))
        plain.validate(full=True)
        assert plain.to_pylist() == values[begin:]


ENCODED: dict[str, tuple[list[list[Any]], pa.DataType]] = {
    "texts": ([["a", None], [None, "b"]], pa.string()),
    "the same texts": ([["a", None], ["a", None]], pa.string()),
    "lists": ([[[1], None], [[2], None]], pa.list_(pa.int64())),
    "without null": ([["a", "b"], ["b", "a"]], pa.string()),
}


@pytest.mark.parametrize("views", [False, True], ids=["", "beside views"])
@pytest.mark.parametrize("nested", [False, True], ids=["", "in lists"])
@pytest.mark.parametrize("name", ENCODED)
def test_rows_are_taken_of_dictionaries_that_differ_and_have_nulls(
    name: str, nested: bool, views: bool
) -> None:
    batches = []
    for values in ENCODED[name][0]:
        dictionary = pa.array(values, ENCODED[name][1])
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), dictionary)
        if nested:
            column = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 4], pa.int32()), column)
        beside = pa.array(list("abcd"), pa.string_view() if views else pa.string())
        batches.append(pa.record_batch({"c": column, "v": beside}))
    for rows in (pa.Table.from_batches(batches), *batches):
        values = rows.to_pylist()
        for places in ([], [0], [3, 1], [*range(len(values))], [len(values) - 1, 0, 1]):
            made = taken(rows, pa.array(places, pa.int64()))
            made.validate(full=True)
            assert made.schema == rows.schema
            assert made.to_pylist() == [values[place] for place in places]
