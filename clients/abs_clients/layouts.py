"""Arrow's newer layouts of text, bytes and lists, which pyarrow before 16 does not have.

Spark runtimes bring their own pyarrow. Without a layout, no array has it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

Test = Callable[[pa.DataType], bool]


def _never(_: pa.DataType) -> bool:
    return False


is_string_view: Test = getattr(pa.types, "is_string_view", _never)
is_binary_view: Test = getattr(pa.types, "is_binary_view", _never)
is_list_view: Test = getattr(pa.types, "is_list_view", _never)
is_large_list_view: Test = getattr(pa.types, "is_large_list_view", _never)


def is_text(kind: pa.DataType) -> bool:
    """Whether it holds text, in any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether it holds bytes of any length, in any layout."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or is_binary_view(kind))


PLAIN_VIEWS: dict[pa.DataType, pa.DataType] = {
    getattr(pa, view)(): plain
    for view, plain in (("string_view", pa.string()), ("binary_view", pa.binary()))
    if hasattr(pa, view)
}
"""The plain layout of each view."""
