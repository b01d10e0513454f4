"""Encodes the headers of records column by column. No I/O.

Source: chapter "Record Header" of the manual (KIP-82).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.buffers import bytes_of, offsets_of

Header = tuple[str, bytes | None]

Headers: TypeAlias = "bytes | pa.BinaryArray"
"""Encoded: of each record, or the same for all of them."""

NO_HEADERS = b"\0"

# As buffers: pa.scalar would import pandas, 0.24 s of CPU for each process that loads the client.
NOTHING = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])[
    0
]


def encoded_headers(own: pa.ListArray | None, more: Sequence[Header] = ()) -> Headers:
    """The encoded headers at the end of each record.

    Args:
        own: list of struct(key string, value binary), per record; null: none. A key is never null.
        more: headers that each record gets after its own.
    """
    last = b"".join(_one(key, value) for key, value in more)
    if own is None:
        return _varint(len(more)) + last
    counts = pc.list_value_length(own).fill_null(0).to_numpy().astype(np.int64)
    pairs = _each(own.flatten())  # what lies beneath a null is left out
    # The headers of a record lie end to end already: the column of records has other offsets only.
    ends = offsets_of(pairs)[np.concatenate(([0], np.cumsum(counts)))]
    buffers = [None, pa.py_buffer(ends - ends[0]), pa.py_buffer(bytes_of(pairs))]
    of_records = pa.Array.from_buffers(pa.binary(), len(own), buffers)
    number = varints(zigzag(counts + len(more)))
    tail = pa.scalar(last, pa.binary())
    joined: pa.BinaryArray = pc.binary_join_element_wise(number, of_records, tail, NOTHING)
    return joined


def header_bytes(headers: Headers) -> Numbers | int:
    """The encoded size of each record's headers."""
    return len(headers) if isinstance(headers, bytes) else np.diff(offsets_of(headers))


def _each(pairs: pa.StructArray) -> pa.BinaryArray:
    """Each header, encoded."""
    keys, values = pairs.field(0).cast(pa.binary()), pairs.field(1).cast(pa.binary())
    if len(pairs) == 0:
        return keys
    key_length = pc.binary_length(keys).to_numpy().astype(np.int64)
    value_length = pc.binary_length(values).fill_null(-1).to_numpy().astype(np.int64)
    return pc.binary_join_element_wise(
        varints(zigzag(key_length)),
        keys,
        varints(zigzag(value_length)),
        values.fill_null(b""),
        NOTHING,
    )


def _one(key: str, value: bytes | None) -> bytes:
    name = key.encode()
    length = -1 if value is None else len(value)
    return _varint(len(name)) + name + _varint(length) + (value or b"")


def _varint(number: int) -> bytes:
    made: bytes = varints(zigzag(np.array([number], np.int64))).as_py()
    return made


Numbers = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]

_TABLE = 1 << 15
"""Encodings of 0 up to here are looked up: most lengths and all but the largest batches' offsets."""


def zigzag(numbers: Numbers) -> Numbers:
    """Zigzag encoding: 0, -1, 1, -2, ... become 0, 1, 2, 3, ..."""
    return (numbers << 1) ^ (numbers >> 63)


def lengths_of(numbers: Numbers | Unsigned) -> Numbers:
    """The encoded size of each non-negative number."""
    lengths = np.ones(len(numbers), np.int64)
    bound, most = 1 << 7, int(numbers.max(initial=0))
    while most >= bound:
        lengths += numbers >= bound
        bound <<= 7
    return lengths


def varints(numbers: Numbers | Unsigned) -> pa.BinaryArray | pa.BinaryScalar:
    """Non-negative numbers in base 128, lowest bits first; a scalar if all are equal."""
    if len(numbers) and (numbers == numbers[0]).all():
        return _encoded(numbers[:1])[0]
    if int(numbers.max(initial=0)) < _TABLE:
        return _table().take(pa.array(numbers))
    return _encoded(numbers)


@cache
def _table() -> pa.BinaryArray:
    return _encoded(np.arange(_TABLE))


def _encoded(numbers: Numbers | Unsigned) -> pa.BinaryArray:
    lengths = lengths_of(numbers)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    data = np.empty(int(ends[-1]), np.uint8)
    for byte in range(int(lengths.max(initial=0))):
        have = lengths > byte
        low = ((numbers[have] >> (7 * byte)) & 0x7F).astype(np.uint8)
        more = (lengths[have] > byte + 1).astype(np.uint8)
        data[ends[:-1][have] + byte] = low | (more << 7)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)
