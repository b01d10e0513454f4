"""A cast to the plain type keeps every value, in each of Arrow's list layouts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.arrow import cast_plain, plain_type

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
