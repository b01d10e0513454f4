"""Filters the records of ``protocol=idempotent`` by winner; see ``abs_clients.kafka.attempts``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from abs_clients.kafka.attempts import FilterResult, Winners, side_topic
from abs_clients.kafka.cluster import cluster
from abs_core.errors import ReplayMismatchError
from abs_sources.kafka.lookup import lookup
from abs_sources.kafka.offsets import Range
from abs_sources.kafka.options import KafkaSourceOptions
from abs_sources.kafka.reader import KafkaReader, rest_until_undecided


class SideTopic:
    """The winners records of one topic. The calls raise as ``Lookup`` and ``KafkaReader``.

    Args:
        topic: the data's.
    """

    def __init__(self, options: KafkaSourceOptions, topic: str) -> None:
        # Winners are themselves no attempts; and they are decided where they are committed.
        client = options.client.with_(**{"isolation.level": "read_committed"})
        # No other option of a job counts here: jobs of different ones share it (``attempt_filter``).
        self._options = KafkaSourceOptions(client, winners=False, waits=options.waits)
        self.name = side_topic(topic)

    def id(self) -> str | None:
        """Of the topic of this name now; None if there is none."""
        # A broker that does not know it is not believed at once.
        topic = lookup(self._options).topics([self.name], {self.name: None}).get(self.name)
        return None if topic is None else topic.id

    def first(self) -> int:
        """The oldest existing offset."""
        return lookup(self._options).first([(self.name, 0)])[self.name, 0]

    def end(self) -> int:
        """The offset after the last record that is committed now."""
        return lookup(self._options).end([(self.name, 0)])[self.name, 0]

    def values(self, id_: str, start: int, end: int) -> Iterator[bytes | None]:
        """The values of the records of a range, of the topic that has this id."""
        part = Range(self.name, id_, 0, start, end)
        with closing(KafkaReader(self._options, part)) as reader:
            for batch in rest_until_undecided(reader):
                yield from batch.column("value").to_pylist()


class AttemptFilter:
    """Filters the records of one topic; reads on in its side topic at an undecided one.

    Thread-safe. Use ``attempt_filter``: a process then reads the side topic once, not per split.
    The side topic is created before the first attempt writes: attempts without one are an error.
    """

    def __init__(self, side: SideTopic) -> None:
        self._side = side
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
        id_ = self._side.id()
        if id_ is None:
            return Winners(there=False)
        if self._winners is None:
            self._topic_id = id_
            self._next = self._side.first()
            self._winners = Winners(complete=self._next == 0)
        if id_ != self._topic_id:
            raise ReplayMismatchError(
                f"Kafka: the side topic {self._side.name} was deleted and created again: what it "
                "recorded about earlier records is lost.",
                remedy="write to a new topic; winners=false reads the records of every attempt.",
            )
        end = self._side.end()
        if end > self._next:
            self._winners.read(self._side.values(id_, self._next, end))
            self._next = end
        return self._winners


def attempt_filter(options: KafkaSourceOptions, topic: str) -> AttemptFilter:
    """The process's only filter of a topic and patience; a forked process has its own."""
    key = "attempt filter", topic, options.waits
    return cluster(options.client).kept(key, lambda: AttemptFilter(SideTopic(options, topic)))


def decided_until(options: KafkaSourceOptions, part: Range) -> int:
    """The offset of a range's first undecided record, or the range's end.

    Raises as a reader's ``read``.
    """
    filter_ = attempt_filter(options, part.topic).filter
    with closing(KafkaReader(options, part, filter_, waits=True)) as reader:
        for _ in rest_until_undecided(reader):
            pass
        return Range.of(reader.position).start
