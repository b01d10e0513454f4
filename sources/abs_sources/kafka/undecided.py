"""Finds the attempts of ``protocol=idempotent`` in a topic that no winners record has decided.

Only the records' headers say which attempts wrote to a topic, so all records are read, from the
oldest one to the end at the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.kafka.attempts import HEADER, Winners, attempt_of
from abs_core.model import HandleName
from abs_core.patience import DEFAULT_SECONDS
from abs_core.source import Limit
from abs_sources.kafka.attempt_filter import attempt_filter
from abs_sources.kafka.offsets import Range
from abs_sources.kafka.options import KafkaSourceOptions
from abs_sources.kafka.reader import KafkaReader, rest_until_undecided
from abs_sources.kafka.source import KafkaSource


@dataclass(frozen=True, slots=True)
class Undecided:
    """An attempt whose records readers with ``winners=true`` wait for.

    Args:
        records: number of its records in the topic.
        first: position of the first one found.
        first_ms: their least timestamp, in milliseconds since 1970: by the brokers' clock if the
            topic is set so, else the writer's, or the job's column ``timestamp``.
    """

    handle: HandleName
    records: int
    first: str
    first_ms: int

    def with_more(self, other: Undecided) -> Undecided:
        """The same attempt with records found later."""
        first_ms = min(self.first_ms, other.first_ms)
        return Undecided(self.handle, self.records + other.records, self.first, first_ms)


def undecided(
    client: Mapping[str, str], topic: str, patience: float = DEFAULT_SECONDS
) -> list[Undecided]:
    """The attempts that are undecided in the side topic after all records were read.

    Args:
        client: librdkafka's settings, without a prefix.
        patience: seconds to wait for silent brokers.

    Raises:
        RefusedError: the topic does not exist, or may not be read.
        CorruptionError: a header names no attempt; or winners records, or the side topic, are
            deleted.
        ReplayMismatchError: the side topic was recreated during the read.
        UnavailableError: the brokers do not answer.
    """
    # What stands behind another job's open transaction is of interest, too; attempts are in none.
    fixed = {"kafka.isolation.level": "read_uncommitted", "subscribe": topic, "winners": "false"}
    settings = {f"kafka.{name}": value for name, value in client.items()}
    # Of what retention takes meanwhile nothing is waited for.
    how = {"startingOffsets": "earliest", "includeHeaders": "true", "failOnDataLoss": "false"}
    how["patience"] = f"{patience:g}"
    options = KafkaSourceOptions.parse({**settings, **fixed, **how})
    return undecided_in(_batches(KafkaSource(options)), attempt_filter(options, topic).winners)


def undecided_in(
    batches: Iterable[pa.RecordBatch], winners: Callable[[], Winners]
) -> list[Undecided]:
    """The attempts in all of a topic's records that are undecided after these were read.

    Args:
        winners: the decisions at the call.
    """
    decided: Winners | None = None
    by_handle: dict[HandleName, Undecided] = {}
    for batch in batches:
        for attempt in _attempts(batch):
            decided = winners() if decided is None else decided
            if decided.counts(attempt.handle) is None:
                earlier = by_handle.get(attempt.handle)
                by_handle[attempt.handle] = (
                    attempt if earlier is None else earlier.with_more(attempt)
                )
    decided = winners() if by_handle else Winners()
    return [entry for handle, entry in sorted(by_handle.items()) if decided.counts(handle) is None]


def _batches(source: KafkaSource) -> Iterator[pa.RecordBatch]:
    start = source.initial()
    for split in source.splits(start, source.latest(start, Limit())):
        with closing(KafkaReader(source.options, Range.of(split))) as reader:
            yield from rest_until_undecided(reader)


def _attempts(batch: pa.RecordBatch) -> list[Undecided]:
    """The attempts in a batch of one partition, with their records."""
    headers = batch.column("headers")
    items = headers.flatten()
    ours = pc.equal(items.field(0), HEADER)
    rows = pc.list_parent_indices(headers).filter(ours).to_numpy()
    encoded = items.field(1).filter(ours).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    millis = batch.column("timestamp").cast(pa.int64()).to_numpy()[rows] // 1000
    attempts = []
    for code, value in enumerate(encoded.dictionary.to_pylist()):
        of_it = np.flatnonzero(codes == code)
        handle = attempt_of(value)
        assert handle is not None, "the header's value is there"
        row = int(rows[of_it[0]])
        at = f"{batch.column('topic')[0]}-{batch.column('partition')[0]}"
        first = f"{at} offset {batch.column('offset')[row]}"
        attempts.append(Undecided(handle, len(of_it), first, int(millis[of_it].min())))
    return attempts
