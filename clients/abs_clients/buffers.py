"""Converts between Arrow arrays and numpy arrays, without copies if possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]


def values_of(array: pa.Array, dtype: DTypeLike) -> Array:
    """The values of a fixed-width array; undefined at nulls."""
    layout = np.dtype(dtype)
    if len(array) == 0:
        return np.empty(0, layout)
    data = array.buffers()[1]
    return np.frombuffer(data, layout, len(array), array.offset * layout.itemsize)


def offsets_of(array: pa.Array) -> Array:
    """The start of each string or binary, and the end of the last: shape (len + 1,)."""
    if len(array) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def bytes_of(array: pa.Array) -> Array:
    """The concatenated bytes of all strings or binaries."""
    ends = offsets_of(array)
    first, last = int(ends[0]), int(ends[-1])
    if first == last:
        return np.empty(0, np.uint8)
    return np.frombuffer(array.buffers()[2], np.uint8, last - first, first)


def binaries(
    data: Array, lengths: Array, like: pa.Array, arrow: pa.DataType | None = None
) -> pa.Array:
    """Binaries of these lengths, concatenated in ``data``; null where ``like`` is.

    Raises pyarrow.ArrowCapacityError for 2 GiB or more.
    """
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    if ends[-1] >= 2**31:
        raise pa.ArrowCapacityError("binary values of 2 GiB or more in one batch")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    made = pa.Array.from_buffers(arrow or pa.binary(), len(lengths), buffers)
    return pc.if_else(like.is_valid(), made, None) if like.null_count else made


MARK = b"\xef\xbb\xbf"
"""The mark at the begin of a text in UTF-8; anywhere else it is a sign of the text (U+FEFF)."""


def csv_block(lines: bytes) -> bytes:
    """Lines from within a text for Arrow's CSV reader.

    It drops a mark at the begin of any block; and takes nothing, as the last value of a last line that
    no sign ends, for an empty text if the value before it is in quotes (Arrow 26).
    """
    lines = MARK + lines if lines.startswith(MARK) else lines
    return lines if lines.endswith(b"\n") else lines + b"\n"
