"""Encodes records as Kafka record batches: chooses partitions, cuts, and numbers the batches."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from abs_clients.buffers import bytes_of, offsets_of
from abs_clients.kafka.settings import LIBRDKAFKA_BYTES, Settings
from abs_clients.kafka.topics import TopicFacts, topics_in_time
from abs_core.errors import SchemaError
from abs_sinks.kafka.columnar.choice import compression_of
from abs_sinks.kafka.columnar.outbox import Batch
from abs_sinks.kafka.columnar.recordbatch import (
    HEADER_BYTES,
    SEQUENCES,
    ProducerIdentity,
    record_batch,
)
from abs_sinks.kafka.headers import Header, Headers, encoded_headers, header_bytes
from abs_sinks.kafka.records import RECORD_OVERHEAD, Records, joined, slices

GATHERED_BYTES = 2 << 20
"""Bytes of keys and values that are encoded at once: enough for large batches."""

PIECE_BYTES = 4 * GATHERED_BYTES

RUN = 2_000
"""Records without a key that go to one partition before the next one's turn."""

RECORD_OVERHEAD_BYTES = RECORD_OVERHEAD - HEADER_BYTES
"""Upper bound of a record's bytes besides key and value: five numbers and three bytes."""


class Encoder:
    """Makes the batches of one producer to one topic, in order per partition.

    Args:
        more: headers added to each record.
    """

    def __init__(
        self, settings: Settings, topic: str, who: ProducerIdentity, more: Sequence[Header] = ()
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._who = who
        self._more = more
        self._compression = compression_of(settings)
        self._by_key = (settings.get("partitioner") or "murmur2_random") != "random"
        self._turn = secrets.randbelow(1 << 20)
        self._gathered: list[Records] = []
        self._gathered_bytes = 0
        self._next: Counter[int] = Counter()
        self._made: Counter[int] = Counter()

    @property
    def has_enough(self) -> bool:
        """Whether enough was gathered to encode."""
        return self._gathered_bytes >= GATHERED_BYTES

    def gather(self, records: Records) -> None:
        self._gathered.append(records)
        self._gathered_bytes += _bytes_of(records)

    def batches(self) -> Iterator[Batch]:
        """Encode all that was gathered.

        Raises:
            SchemaError: the topic is gone.
            TargetError: its metadata cannot be read.
        """
        if not self._gathered:
            return
        records = joined(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        facts = self._facts
        size = min(self._settings.batch_size_bytes, self._settings.message_max_bytes)
        limit = min(size, facts.max_message_bytes or LIBRDKAFKA_BYTES)
        places = placed(records, facts.partitions, by_key=self._by_key, turn=self._turn)
        self._turn += records.rows
        now_ms = time.time_ns() // 1_000_000
        headers = encoded_headers(records.headers, self._more)
        yield from (self._batch(cut) for cut in cuts(records, headers, places, now_ms, limit))

    @cached_property
    def _facts(self) -> TopicFacts:
        # Once for each sender: the writer has looked at the topic for every batch of rows.
        facts = topics_in_time(self._settings, [self._topic]).get(self._topic)
        if facts is None:
            raise SchemaError(
                f"Topic {self._topic} is gone.",
                remedy="create it again; nothing of the epoch is committed.",
            )
        return facts

    def _batch(self, cut: Cut) -> Batch:
        at, count = cut.partition, len(cut.values)
        payload = record_batch(
            cut.keys,
            cut.values,
            self._who,
            cut.times,
            sequence=self._next[at],
            headers=cut.headers,
            compression=self._compression,
        )
        number = self._made[at]
        self._made[at] += 1
        self._next[at] = (self._next[at] + count) % SEQUENCES
        return Batch(at, number, count, payload)


@dataclass(frozen=True, slots=True)
class Cut:
    """Records of one batch."""

    partition: int
    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    headers: Headers
    times: npt.NDArray[np.int64]


def placed(records: Records, partitions: int, *, by_key: bool, turn: int) -> npt.NDArray[np.int32]:
    """The partition of each record: the given one, the key's, or the one whose turn it is.

    Args:
        turn: records that the task has sent, plus a random start, so that tasks differ.
    """
    places = np.full(records.rows, -1, np.int32)
    if by_key and records.keys is not None:
        places = partitions_of(records.keys, partitions)
    if records.partitions is not None:
        asked = records.partitions.fill_null(-1).to_numpy()
        places = np.where(asked < 0, places, asked)
    free = np.flatnonzero(places < 0)
    places[free] = (turn + free) // RUN % partitions
    return places


def cuts(
    records: Records,
    headers: Headers,
    places: npt.NDArray[np.int32],
    now_ms: int,
    most_bytes: int,
) -> Iterator[Cut]:
    """Group the records by partition, in order, and cut them to batches.

    Args:
        headers: the records', encoded.
        now_ms: the timestamp of records without one.
        most_bytes: of a batch before compression; a larger record gets its own batch.
    """
    small = places.astype(np.min_scalar_type(int(places.max(initial=0))))
    order = np.argsort(small, kind="stable")  # up to 16 bits by radix
    values = records.values.take(pa.array(order))
    keys = None if records.keys is None else records.keys.take(pa.array(order))
    tails = headers if isinstance(headers, bytes) else headers.take(pa.array(order))
    times = np.full(len(order), now_ms, np.int64)
    if records.timestamps is not None:
        times = records.timestamps.fill_null(now_ms).to_numpy()[order]
    ends = np.cumsum(np.bincount(places))
    sizes = np.diff(offsets_of(values)) + RECORD_OVERHEAD_BYTES + header_bytes(tails)
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
            own = tails if isinstance(tails, bytes) else tails[piece]
            yield Cut(partition, some, values[piece], own, times[piece])
            start = stop


def _bytes_of(records: Records) -> int:
    columns = (records.keys, records.values, records.headers)
    return sum(column.nbytes for column in columns if column is not None)


def pieces(records: Records) -> Iterator[Records]:
    """Slice the records to a few megabytes: an Arrow batch may be of any size."""
    return slices(records, max(1, records.rows * PIECE_BYTES // max(1, _bytes_of(records))))


_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
_POSITIVE = np.uint32(0x7FFFFFFF)


def murmur2(keys: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """The unsigned hash of each key, by the Java client's partitioner; undefined at nulls.

    Source: ``Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey`` of Apache Kafka.
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
    places = ((murmur2(keys) & _POSITIVE) % np.uint32(count)).astype(np.int32)
    if keys.null_count:
        places[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return places


def _words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The four bytes from each position on, little-endian, without a copy."""
    return np.ndarray((max(0, len(data) - 3),), "<u4", data, strides=(1,))
