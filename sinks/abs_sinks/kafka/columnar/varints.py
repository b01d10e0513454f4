"""Encodes columns of numbers in zigzag and base 128, as in Kafka's records.

Source: "Varint" in the manual's chapter on message formats, which follows Protocol Buffers.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
