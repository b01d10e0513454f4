"""Records to batches: gathered, placed, cut and encoded under their sequence numbers."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from abs_clients.kafka.format.compression import Compression
from abs_clients.kafka.format.recordbatch import Identity, record_batch
from abs_clients.kafka.producer.outbox import Batch
from abs_clients.kafka.settings import LIBRDKAFKA_BYTES
from abs_clients.kafka.topics import topics_in_time
from abs_core.errors import SchemaError
from abs_sinks.kafka.columnar.placement import Cut, cuts, placed
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records, sliced

GATHERED_BYTES = 2 << 20
"""Keys and values that are encoded at once: enough for batches that are worth a request."""

PIECE_BYTES = 4 * GATHERED_BYTES

_SEQUENCES = 1 << 31


class Encoder:
    """Makes the batches of one transaction to one topic, each partition's in order.

    Args:
        who: writes the transaction.
    """

    def __init__(self, options: KafkaOptions, who: Identity) -> None:
        assert options.topic is not None
        self._options = options
        self._topic = options.topic
        self._who = who
        self._compression = compression(options)
        self._by_key = (options.kafka.get("partitioner") or "murmur2_random") != "random"
        self._turn = secrets.randbelow(1 << 20)
        self._gathered: list[Records] = []
        self._gathered_bytes = 0
        self._next: Counter[int] = Counter()
        self._made: Counter[int] = Counter()

    @property
    def has_enough(self) -> bool:
        """Whether what was gathered is worth to be encoded."""
        return self._gathered_bytes >= GATHERED_BYTES

    def gather(self, records: Records) -> None:
        self._gathered.append(records)
        self._gathered_bytes += records.values.nbytes
        self._gathered_bytes += 0 if records.keys is None else records.keys.nbytes

    def batches(self) -> Iterator[Batch]:
        """Of all that was gathered.

        Raises:
            SchemaError: the topic is gone.
            TargetError: it cannot be looked at.
        """
        if not self._gathered:
            return
        records = _joined(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        facts = topics_in_time(self._options.kafka, [self._topic]).get(self._topic)
        if facts is None:
            raise SchemaError(
                f"Topic {self._topic} is gone.",
                remedy="create it again; nothing of the epoch is committed.",
            )
        limit = min(batch_bytes(self._options), facts.max_message_bytes or LIBRDKAFKA_BYTES)
        places = placed(records, facts.partitions, by_key=self._by_key, turn=self._turn)
        self._turn += records.rows
        now_ms = time.time_ns() // 1_000_000
        yield from (self._batch(cut) for cut in cuts(records, places, now_ms, limit))

    def _batch(self, cut: Cut) -> Batch:
        at, count = cut.partition, len(cut.values)
        payload = record_batch(
            cut.keys,
            cut.values,
            self._who,
            cut.times,
            sequence=self._next[at],
            compression=self._compression,
        )
        number = self._made[at]
        self._made[at] += 1
        self._next[at] = (self._next[at] + count) % _SEQUENCES
        return Batch(at, number, count, payload)


def compression(options: KafkaOptions) -> Compression:
    """As librdkafka's settings say; they were checked with the options."""
    given = options.kafka.get("compression.type") or options.kafka.get("compression.codec")
    return Compression.parse(given, options.kafka.get("compression.level"))


def batch_bytes(options: KafkaOptions) -> int:
    """Of a batch at most, before it is compressed: what client and settings allow."""
    return min(options.kafka.batch_size_bytes, options.kafka.message_max_bytes)


def _joined(parts: Sequence[Records]) -> Records:
    def column(of: Callable[[Records], pa.Array | None]) -> pa.Array | None:
        return None if of(parts[0]) is None else pa.concat_arrays([of(part) for part in parts])

    return Records(
        values=column(lambda part: part.values),
        keys=column(lambda part: part.keys),
        headers=None,
        topics=None,
        partitions=column(lambda part: part.partitions),
        timestamps=column(lambda part: part.timestamps),
    )


def pieces(records: Records) -> Iterator[Records]:
    """The records in runs of a few megabytes: a batch of Arrow's may be of any size."""
    size = records.values.nbytes + (0 if records.keys is None else records.keys.nbytes)
    rows = max(1, records.rows * PIECE_BYTES // max(1, size))
    if rows >= records.rows:
        yield records
        return
    for start in range(0, records.rows, rows):
        yield sliced(records, start, rows)
