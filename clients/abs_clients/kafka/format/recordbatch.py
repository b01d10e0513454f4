"""Columns to a record batch of Kafka's format v2, and nothing else: no I/O, no clock.

A record is, one after another: its length, attributes (0), timestamp and offset as differences to the
batch's, key and value with their lengths (-1: null), and the number of its headers (none here). Arrow
joins such columns row by row, so the bytes of the result are the batch's records.

Source: chapters "Record Batch" and "Record" of the manual (KIP-98, KIP-82).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import cast

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.buffers import bytes_of
from abs_clients.kafka.format.compression import NONE, Compression
from abs_clients.kafka.format.varints import Numbers, lengths_of, varints, zigzag

HEADER_BYTES = 61
_BEFORE_CRC = struct.Struct(">qiibI")  # base offset, length, leader's epoch, magic, CRC
_AFTER_CRC = struct.Struct(">hiqqqhii")
_UNCOUNTED = 12
"""Bytes before the length's own end: it counts what follows."""
_MAGIC = 2
_TRANSACTIONAL = 1 << 4

_ATTRIBUTES = b"\0"
_NO_HEADERS = b"\0"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes: a transactional id with the producer id and epoch that InitProducerId gave it."""

    transactional_id: str
    producer_id: int
    epoch: int


def record_batch(
    keys: pa.BinaryArray | None,
    values: pa.BinaryArray,
    who: Identity,
    times: Numbers,
    *,
    sequence: int,
    compression: Compression = NONE,
) -> bytes:
    """One batch for one partition, in a transaction.

    Args:
        keys: None: no record has one.
        times: the records' timestamps, milliseconds since 1970.
        sequence: of its first record, in this partition and producer epoch.
    """
    count, first = len(values), int(times.min())
    codec, records = compression(encoded(keys, values, times - first))
    after = _AFTER_CRC.pack(
        codec | _TRANSACTIONAL,
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


def encoded(keys: pa.BinaryArray | None, values: pa.BinaryArray, later: Numbers) -> memoryview:
    """The records of one batch, end to end, not compressed.

    Args:
        later: each record's timestamp, from the batch's earliest on, in milliseconds.

    Raises:
        pyarrow.ArrowInvalid: they are 2 GiB or more.
    """
    key_length, key = _sized(keys, len(values))
    value_length, value = _sized(values, len(values))
    time, offset = zigzag(later), zigzag(np.arange(len(values)))
    # Attributes and the number of headers take a byte each.
    body = 2 + lengths_of(time) + lengths_of(offset)
    for length in (key_length, value_length):
        body += lengths_of(zigzag(length)) + np.maximum(length, 0)
    joined = pc.binary_join_element_wise(
        varints(zigzag(body)),
        _beginnings(time),
        varints(zigzag(key_length)),
        key,
        varints(zigzag(value_length)),
        value,
        pa.scalar(_NO_HEADERS, pa.binary()),
        pa.scalar(b"", pa.binary()),  # what stands between them
    )
    return bytes_of(joined).data


def _beginnings(time: Numbers) -> pa.BinaryArray:
    """Of each record up to its key: attributes, timestamp and offset."""
    kept = _at_one_time()
    if len(time) <= len(kept) and not time.any():
        return kept[: len(time)]  # the same in all such batches
    return _made_beginnings(time)


@cache
def _at_one_time() -> pa.BinaryArray:
    return _made_beginnings(np.zeros(1 << 14, np.int64))


def _made_beginnings(time: Numbers) -> pa.BinaryArray:
    offsets = varints(zigzag(np.arange(len(time))))
    fixed, none = pa.scalar(_ATTRIBUTES, pa.binary()), pa.scalar(b"", pa.binary())
    made = pc.binary_join_element_wise(fixed, varints(time), offsets, none)
    return pa.repeat(made, len(time)) if isinstance(made, pa.Scalar) else made  # of a single record


def _sized(column: pa.BinaryArray | None, count: int) -> tuple[Numbers, pa.Array]:
    """Lengths, -1 where null, and the bytes, none where null."""
    if column is None:
        return np.full(count, -1), pa.scalar(b"", pa.binary())
    lengths = pc.binary_length(column)
    if column.null_count:
        return cast(Numbers, lengths.fill_null(-1).to_numpy().astype(np.int64)), column.fill_null(
            b""
        )
    return cast(Numbers, lengths.to_numpy().astype(np.int64)), column
