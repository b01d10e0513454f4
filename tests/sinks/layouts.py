"""The same Arrow values in other layouts: in other places, as other types, over other hidden values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Layouts = Iterator[tuple[str, pa.Array]]

_TEXTS = (pa.large_string(), pa.string_view())
_BYTES = (pa.large_binary(), pa.binary_view())


def layouts(array: pa.Array) -> Layouts:
    """Arrays of the same values, each with a name."""
    if not len(array):
        return
    kind = array.type
    for before in (1, 9):  # a cut within a byte of the bits that tell nulls, and beyond it
        yield f"cut after {before}", pa.concat_arrays([*[array[-1:]] * before, array])[before:]
    yield "values under nulls", _over_other_values(array)
    if pa.types.is_list(kind):
        yield from _lists(array)
    elif not pa.types.is_nested(kind):
        yield from _scalars(array)


def _scalars(array: pa.Array) -> Layouts:
    kind = array.type
    for other in _TEXTS if pa.types.is_string(kind) else _BYTES if pa.types.is_binary(kind) else ():
        yield str(other), array.cast(other)
    yield "dictionary", array.dictionary_encode()
    yield "dictionary that holds null", array.dictionary_encode(null_encoding="encode")
    yield "runs", pc.run_end_encode(array)
    yield "cut runs", pc.run_end_encode(pa.concat_arrays([array[:1], array]))[1:]


def _lists(array: pa.Array) -> Layouts:
    values, element = array.to_pylist(), array.type.value_type
    for layout in (pa.large_list, pa.list_view, pa.large_list_view):
        yield layout.__name__, pa.array(values, layout(element))
        yield f"cut {layout.__name__}", pa.array([values[-1], *values], layout(element))[1:]
    yield "turned list_view", pa.array(values[::-1], pa.list_view(element))[::-1]


def _over_other_values(array: pa.Array) -> pa.Array:
    """Where the array is null there is the buffers' content of its first value."""
    values = array.to_pylist()
    first = next((value for value in values if value is not None), None)
    if first is None:
        return array
    whole = pa.array([first if value is None else value for value in values], array.type)
    valid = [value is not None for value in values]
    bits = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    children = _children(whole)
    own = len(whole.buffers()) if not children else 1 if pa.types.is_struct(array.type) else 2
    buffers = [bits, *whole.buffers()[1:own]]
    return pa.Array.from_buffers(array.type, len(array), buffers, children=children)


def _children(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(n) for n in range(kind.num_fields)]
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        return [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
    return [array.values] if pa.types.is_list(kind) else []
