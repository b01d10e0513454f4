"""The clients of a process for one register topic: they last, because to open one costs 60 ms."""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict
from threading import Lock, RLock

from confluent_kafka import Consumer

from abs_clients.kafka.cluster import cluster
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register_producer import SHORT_TIMEOUT_MS, FencedProducer
from abs_sinks.kafka.register_tail import Tail, reading
from abs_sinks.kafka.register_topic import RegisterTopic, find_topic, make_topic

log = logging.getLogger(__name__)

KEPT_PRODUCERS = 4
"""Jobs whose producer stays open; a batch job takes one for each token."""


class Session:
    """Clients, made as they are needed. Thread-safe."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self._lock = Lock()
        self._topic: RegisterTopic | None = None
        self._tails: dict[int, Tail] = {}
        self._producers: OrderedDict[str, FencedProducer] = OrderedDict()
        self._turns: defaultdict[str, RLock] = defaultdict(RLock)

    def turn(self, job: str) -> RLock:
        """Threads of a process take turns at a cell: they share its producer."""
        with self._lock:
            return self._turns[job]

    def tail(self, partition: int) -> Tail:
        with self._lock:
            if partition not in self._tails:
                # It says at once where nobody is let in.
                cluster(self.options.kafka).admin.open()
                name = self.options.registertopic
                self._tails[partition] = Tail(self.options.kafka, name, partition)
            return self._tails[partition]

    def forget_readers(self) -> None:
        """The next read is by new clients: librdkafka holds on to what it heard of a topic.

        For seconds it goes on to say that there is none, although it was made, or allowed, since.
        """
        with self._lock:
            self._tails = {}

    def topic(self) -> RegisterTopic:
        """The topic, made where it is missing, and looked at once."""
        with self._lock:
            if self._topic is None:
                self._topic = make_topic(self.options.kafka, self.options.registertopic)
            return self._topic

    def topic_exists(self) -> bool:
        """Whether there is a topic now, fit to hold registers."""
        return find_topic(self.options.kafka, self.options.registertopic) is not None

    def producer(self, job: str) -> FencedProducer | None:
        """The one that was opened for the job and not found fenced yet. Its turn must be held."""
        with self._lock:
            found = self._producers.get(job)
            if found is not None and not found.usable:
                del self._producers[job]
                return None
            return found

    def open_producer(self, job: str, timeout_ms: int) -> FencedProducer:
        """A new one: every other, in any process, is fenced. Its turn must be held."""
        opened = FencedProducer(self.options, job, timeout_ms)
        with self._lock:
            self._producers[job] = opened
            self._producers.move_to_end(job)
            while len(self._producers) > KEPT_PRODUCERS:
                # One that is at work in another thread is kept alive by that thread.
                self._producers.popitem(last=False)
        return opened

    def end_writers(self, partition: int) -> None:
        """End the open transactions over cells of this partition, whosever they are.

        Between writing its cell and its commit a coordinator waits for nobody, so one that holds up
        the others for seconds is dead, or so slow that it must try again. No transaction that is
        decided is ended: the broker has its commit then, and finishes it.
        """
        given = {**reading(self.options.kafka), "isolation.level": "read_uncommitted"}
        consumer = Consumer({**given, "enable.partition.eof": True})
        try:
            jobs = self.tail(partition).writers(consumer)
        finally:
            consumer.close()
        for job in sorted(jobs):
            log.warning("ending the transaction of job %s: its register holds up others", job)
            FencedProducer(self.options, job, SHORT_TIMEOUT_MS)

    def close(self) -> None:
        with self._lock:
            for tail in self._tails.values():
                tail.close()
            self._tails, self._topic = {}, None
            self._producers.clear()


def session_of(options: KafkaOptions) -> Session:
    """The session that this process has for these brokers and this topic."""
    return cluster(options.kafka).kept(_key(options), lambda: Session(options))


def close_session(options: KafkaOptions) -> None:
    """Close this process's session for these brokers and this topic. Transactions stay open."""
    cluster(options.kafka).drop(_key(options))


def _key(options: KafkaOptions) -> tuple[str, str]:
    return "register", options.registertopic
