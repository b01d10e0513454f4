"""Filters the records of ``protocol=idempotent`` by winner; see ``abs_clients.kafka.attempts``."""

from __future__ import annotations

import threading
from contextlib import closing

import pyarrow as pa

from abs_clients.kafka.attempts import FilterResult, Winners, side_topic
from abs_clients.kafka.cluster import cluster
from abs_core.errors import ReplayMismatchError
from abs_sources.kafka.lookup import lookup
from abs_sources.kafka.offsets import Range
from abs_sources.kafka.options import KafkaSourceOptions
from abs_sources.kafka.reader import KafkaReader, rest_until_undecided


class AttemptFilter:
    """Filters the records of one topic; reads on in its side topic at an undecided one.

    Thread-safe. Use ``attempt_filter``: a process then reads the side topic once, not per split.
    The side topic is created before the first attempt writes: attempts without one are an error.

    Args:
        topic: the data's.
    """

    def __init__(self, options: KafkaSourceOptions, topic: str) -> None:
        # Winners are themselves no attempts; and they are decided where they are committed.
        client = options.client.with_(**{"isolation.level": "read_committed"})
        # No other option of a job counts here: jobs of different ones share it (``attempt_filter``).
        self._options = KafkaSourceOptions(client, winners=False, waits=options.waits)
        self._side = side_topic(topic)
        self._topic_id: str | None = None
        self._winners: Winners | None = None
        self._next = 0
        self._lock = threading.Lock()

    def filter(self, attempts: pa.BinaryArray) -> FilterResult:
        """See ``Winners.filter``; the side topic is read to its end before a record is undecided.

        Raises:
            CorruptionError: a winners record is deleted or invalid; or the side topic is gone.
            ReplayMismatchError: the side topic was recreated.
        """
        if attempts.null_count == len(attempts):
            return Winners().filter(attempts)
        with self._lock:
            filtered = (self._winners or self._read_on()).filter(attempts)
            if filtered.undecided is None:
                return filtered
            return self._read_on().filter(attempts)

    def winners(self) -> Winners:
        """The decisions so far. Raises as ``filter``."""
        with self._lock:
            return self._read_on()

    def _read_on(self) -> Winners:
        ask, place = lookup(self._options), (self._side, 0)
        # A broker that does not know it is not believed at once.
        topic = ask.topics([self._side], {self._side: None}).get(self._side)
        if topic is None:
            return Winners(there=False)
        if self._winners is None:
            self._topic_id = topic.id
            self._next = ask.first([place])[place]
            self._winners = Winners(complete=self._next == 0)
        if topic.id != self._topic_id:
            raise ReplayMismatchError(
                f"Kafka: the side topic {self._side} was deleted and created again: what it "
                "recorded about earlier records is lost.",
                remedy="write to a new topic; winners=false reads the records of every attempt.",
            )
        end = ask.end([place])[place]
        if end > self._next:
            part = Range(self._side, self._topic_id, 0, self._next, end)
            with closing(KafkaReader(self._options, part)) as reader:
                for batch in rest_until_undecided(reader):
                    self._winners.read(batch.column("value").to_pylist())
            self._next = end
        return self._winners


def attempt_filter(options: KafkaSourceOptions, topic: str) -> AttemptFilter:
    """The process's only filter of a topic and patience; a forked process has its own."""
    key = "attempt filter", topic, options.waits
    return cluster(options.client).kept(key, lambda: AttemptFilter(options, topic))


def decided_until(options: KafkaSourceOptions, part: Range) -> int:
    """The offset of a range's first undecided record, or the range's end.

    Raises as a reader's ``read``.
    """
    filter_ = attempt_filter(options, part.topic).filter
    with closing(KafkaReader(options, part, filter_, waits=True)) as reader:
        for _ in rest_until_undecided(reader):
            pass
        return Range.of(reader.position).start
