"""Which record goes to which partition, and into which batch. Pure, but for where a task begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from abs_clients.buffers import offsets_of
from abs_clients.kafka.format.murmur2 import partitions_of
from abs_clients.kafka.format.recordbatch import HEADER_BYTES
from abs_sinks.kafka.records import RECORD_OVERHEAD, Records

RUN = 2_000
"""So many records without a key stay together, then the next partition's turn comes."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Records of one batch."""

    partition: int
    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    times: npt.NDArray[np.int64]


def placed(records: Records, partitions: int, *, by_key: bool, turn: int) -> npt.NDArray[np.int32]:
    """The partition of each record: the one it names, its key's, or the one whose turn it is.

    Args:
        turn: how many records the task has sent before, plus a number of its own, so that not every
            task begins with partition 0.
    """
    found = np.full(records.rows, -1, np.int32)
    if by_key and records.keys is not None:
        found = partitions_of(records.keys, partitions)
    if records.partitions is not None:
        asked = records.partitions.fill_null(-1).to_numpy()
        found = np.where(asked < 0, found, asked)
    free = np.flatnonzero(found < 0)
    found[free] = (turn + free) // RUN % partitions
    return found


def cuts(
    records: Records, places: npt.NDArray[np.int32], now_ms: int, most_bytes: int
) -> Iterator[Cut]:
    """The records by partition, in their order, in pieces that make batches of bounded size.

    Args:
        now_ms: the timestamp of those that have none.
        most_bytes: of a batch before it is compressed; a larger record gets one of its own.
    """
    small = places.astype(np.min_scalar_type(int(places.max(initial=0))))
    order = np.argsort(small, kind="stable")  # up to 16 bits by radix
    values = records.values.take(pa.array(order))
    keys = None if records.keys is None else records.keys.take(pa.array(order))
    times = np.full(len(order), now_ms, np.int64)
    if records.timestamps is not None:
        times = records.timestamps.fill_null(now_ms).to_numpy()[order]
    ends = np.cumsum(np.bincount(places))
    sizes = np.diff(offsets_of(values)) + RECORD_OVERHEAD_BYTES
    if keys is not None:
        sizes = sizes + np.diff(offsets_of(keys))
    upto = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    start = 0
    for partition, end in enumerate(ends.tolist()):
        while start < end:
            most = upto[start] + most_bytes - HEADER_BYTES
            stop = min(end, max(start + 1, int(np.searchsorted(upto, most, side="right")) - 1))
            piece = slice(start, stop)
            some = None if keys is None else keys[piece]
            yield Cut(partition, some, values[piece], times[piece])
            start = stop


RECORD_OVERHEAD_BYTES = RECORD_OVERHEAD - HEADER_BYTES
"""What a record takes besides key and value at most: five numbers and three bytes."""
