"""The Java client's partitioner (murmur2) over whole columns of keys.

librdkafka has it, too (``partitioner=murmur2_random``); this is for callers that need the partition
before a record is sent. Source: ``Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey`` of
Apache Kafka.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from abs_clients.buffers import bytes_of, offsets_of

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
_POSITIVE = np.uint32(0x7FFFFFFF)


def murmur2(keys: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """The unsigned hash of each key; undefined at nulls.

    Works on all keys at once, four bytes at a time: as many steps as the longest key has words.
    """
    ends = offsets_of(keys).astype(np.int64)
    data, starts, lengths = bytes_of(keys), ends[:-1] - ends[0], np.diff(ends)
    data_words = _words(data)
    with np.errstate(over="ignore"):
        h: npt.NDArray[np.uint32] = _SEED ^ lengths.astype(np.uint32)
        words = lengths >> 2
        size = int(lengths[0]) if len(keys) else 0
        equal = size > 0 and bool((lengths == size).all())
        for word in range(int(words.max(initial=0))):
            long = words > word
            at = slice(None) if long.all() else np.flatnonzero(long)
            if equal:  # one behind the other: they are read without an index
                k = data_words[starts[0] + 4 * word :: size][: len(keys)] * _M
            else:
                k = data_words[starts[at] + 4 * word] * _M
            k ^= k >> np.uint32(24)
            h[at] = h[at] * _M ^ k * _M
        tails = starts + (words << 2)
        rest = lengths & 3
        for count, shift in ((3, 16), (2, 8), (1, 0)):
            at = np.flatnonzero(rest >= count)
            h[at] ^= data[tails[at] + count - 1].astype(np.uint32) << np.uint32(shift)
        h = np.where(rest > 0, h * _M, h)
        h ^= h >> np.uint32(13)
        h *= _M
        h ^= h >> np.uint32(15)
    return h


def partitions_of(keys: pa.BinaryArray, count: int) -> npt.NDArray[np.int32]:
    """The partition of each key among ``count``; -1 (the client's choice) for null."""
    found = ((murmur2(keys) & _POSITIVE) % np.uint32(count)).astype(np.int32)
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def _words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The four bytes from each position on, little-endian, without a copy."""
    return np.ndarray((max(0, len(data) - 3),), "<u4", data, strides=(1,))
