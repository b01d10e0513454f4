"""Encodes columns to a record batch of Kafka's format v2: no I/O, no clock.

A record is its length, attributes (0), timestamp and offset relative to the batch's, key and value
with their lengths (-1: null), and its headers (``headers``). Arrow joins such columns row by row,
so the bytes of the result are the batch's records.

Source: chapters "Record Batch" and "Record" of the manual (KIP-98, KIP-82).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.buffers import bytes_of, offsets_of
from abs_sinks.kafka.columnar.compression import NONE, Compression
from abs_sinks.kafka.headers import (
    NO_HEADERS,
    NOTHING,
    Headers,
    Numbers,
    header_bytes,
    lengths_of,
    varints,
    zigzag,
)

HEADER_BYTES = 61

SEQUENCES = 1 << 31
"""Sequence numbers of a producer's records in a partition; after the last one comes 0 again."""

_BEFORE_CRC = struct.Struct(">qiibI")  # base offset, length, leader's epoch, magic, CRC
_AFTER_CRC = struct.Struct(">hiqqqhii")
_UNCOUNTED = 12
"""Bytes before the length's own end: it counts what follows."""
_MAGIC = 2
_TRANSACTIONAL = 1 << 4

_ATTRIBUTES = b"\0"
_KEPT = 1 << 14
"""For batches of so many records what is the same in all of them is made once."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The producer id and epoch that InitProducerId gave.

    Without ``transactional_id`` it is an idempotent producer outside transactions.
    """

    transactional_id: str | None
    producer_id: int
    epoch: int


def record_batch(
    keys: pa.BinaryArray | None,
    values: pa.BinaryArray,
    who: ProducerIdentity,
    times: Numbers,
    *,
    sequence: int,
    headers: Headers = NO_HEADERS,
    compression: Compression = NONE,
) -> bytes:
    """One batch for one partition, transactional if the writer has a transactional id.

    Args:
        keys: None: no record has one.
        times: the records' timestamps, milliseconds since 1970.
        sequence: of its first record, in this partition and producer epoch.
        headers: of each record, encoded (``headers``); one if all have the same.
    """
    count, first = len(values), int(times.min())
    codec, records = compression(encoded(keys, values, times - first, headers))
    after = _AFTER_CRC.pack(
        codec | (0 if who.transactional_id is None else _TRANSACTIONAL),
        count - 1,
        first,
        int(times.max()),
        who.producer_id,
        who.epoch,
        sequence,
        count,
    )
    crc = crc32c.crc32c(records, crc32c.crc32c(after))
    length = HEADER_BYTES - _UNCOUNTED + len(records)
    return b"".join((_BEFORE_CRC.pack(0, length, -1, _MAGIC, crc), after, records))


def encoded(
    keys: pa.BinaryArray | None,
    values: pa.BinaryArray,
    later: Numbers,
    headers: Headers = NO_HEADERS,
) -> memoryview:
    """The uncompressed records of one batch.

    Args:
        later: each record's timestamp in milliseconds after the batch's earliest.
        headers: encoded.

    Raises:
        pyarrow.ArrowInvalid: they are 2 GiB or more.
    """
    key_size, key = _sized(keys)
    value_size, value = _sized(values)
    many, time = len(values), None if not later.any() else zigzag(later)
    tail = header_bytes(headers)
    of_one_time = time is None and many <= _KEPT
    beginnings: list[Any]
    if (
        of_one_time
        and isinstance(key_size, int)
        and isinstance(value_size, int)
        and isinstance(tail, int)
    ):
        beginnings = [_of_equals(key_size, value_size, tail)[:many]]  # the same in all such batches
    else:
        body = _body(many, time, key_size, value_size, tail)
        beginnings = [body, _place(many, time), _size(key_size)]
    joined = pc.binary_join_element_wise(
        *beginnings,
        key,
        _size(value_size),
        value,
        pa.scalar(headers, pa.binary()) if isinstance(headers, bytes) else headers,
        NOTHING,  # what stands between them
    )
    return bytes_of(joined).data


Sizes = Numbers | int
"""Bytes of each value of a column, -1 where it is null; one number if all have the same."""


@lru_cache(maxsize=16)
def _of_equals(key_size: int, value_size: int, tail: int) -> pa.BinaryArray:
    """The part before the key, in records of one size and one time."""
    return _joined(
        _body(_KEPT, None, key_size, value_size, tail), _place(_KEPT, None), _size(key_size)
    )


def _body(
    count: int, time: Numbers | None, key_size: Sizes, value_size: Sizes, tail: Sizes
) -> pa.BinaryArray:
    """The length of each record, without this length itself."""
    body = len(_ATTRIBUTES) + (1 if time is None else lengths_of(time)) + _offset_bytes(count)
    for size in (key_size, value_size):
        body = body + _size_bytes(size) + np.maximum(size, 0)
    return varints(zigzag(body + tail))


def _place(count: int, time: Numbers | None) -> pa.BinaryArray:
    """Attributes, timestamp and offset of each record."""
    if time is None and count <= _KEPT:
        return _at_one_time()[:count]
    offsets = varints(zigzag(np.arange(count)))
    made = _joined(_ATTRIBUTES, b"\0" if time is None else varints(time), offsets)
    return pa.repeat(made, count) if isinstance(made, pa.Scalar) else made  # of a single record


@cache
def _at_one_time() -> pa.BinaryArray:
    return _joined(_ATTRIBUTES, b"\0", varints(zigzag(np.arange(_KEPT))))


def _offset_bytes(count: int) -> Numbers:
    return _kept_offset_bytes()[:count] if count <= _KEPT else lengths_of(zigzag(np.arange(count)))


@cache
def _kept_offset_bytes() -> Numbers:
    return lengths_of(zigzag(np.arange(_KEPT)))


def _size(size: Sizes) -> pa.BinaryArray | pa.BinaryScalar:
    return varints(zigzag(np.array([size]) if isinstance(size, int) else size))


def _size_bytes(size: Sizes) -> Sizes:
    if isinstance(size, int):
        return int(lengths_of(zigzag(np.array([size])))[0])
    return lengths_of(zigzag(size))


def _joined(*parts: bytes | pa.Array | pa.Scalar) -> Any:
    columns = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, NOTHING)


def _sized(column: pa.BinaryArray | None) -> tuple[Sizes, pa.Array | pa.Scalar]:
    """Sizes and bytes of a column; empty for null."""
    if column is None or column.null_count == len(column):
        return -1, NOTHING
    if column.null_count:
        lengths = pc.binary_length(column).fill_null(-1).to_numpy().astype(np.int64)
        return lengths, column.fill_null(b"")
    lengths = np.diff(offsets_of(column))
    if lengths.min() == lengths.max():
        return int(lengths[0]), column
    return lengths.astype(np.int64), column
