"""The clients of a process for one register topic, and the one producer that may write a job's cell.

They last, because to open one costs 60 ms. Whoever opens a cell's producer last fences all before it:
its transactional id is the cell's (``abs-register.<topic>.<job>``), so the broker itself keeps two
coordinators from writing one cell (KIP-98): a transaction of a fenced producer cannot be committed,
however late its requests come. As long as a producer is not fenced, nobody else has written the cell:
what it wrote last is what the cell holds.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock, RLock

from confluent_kafka import Consumer

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import cluster
from abs_core.patience import Patience
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import single
from abs_sinks.kafka.register_tail import Cell, Record, Tail, reading
from abs_sinks.kafka.register_topic import RegisterTopic, find_topic, make_topic
from abs_sinks.kafka.sending import TransactionalProducer, transactional_producer

log = logging.getLogger(__name__)

KEPT_PRODUCERS = 4
"""Jobs whose producer stays open; a batch job takes one for each token."""

Rows = Callable[[TransactionalProducer], None]
"""Sends records in an open transaction, and returns when each is acknowledged."""


class FencedProducer:
    """Opening it fences older ones, and aborts what they left open. Not thread-safe.

    ``cell`` is what the cell holds as long as this producer is not fenced; ``next`` what it will hold
    after ``commit``.

    Args:
        timeout_ms: after which the broker aborts a transaction on its own.

    Raises:
        TargetError: it could not be opened.
    """

    def __init__(self, options: KafkaOptions, job: str, timeout_ms: int) -> None:
        self.cell: Cell | None = None
        self.next: Cell | None = None
        self.timeout_ms = timeout_ms
        self.usable = True
        self._topic = options.registertopic
        name = register_id(options.registertopic, job)
        # Where rows or winners of an epoch go through it, it sends them as was chosen: librdkafka would
        # need a new producer for each epoch (``may_carry_rows``), half a second and more.
        columnar = options.protocol in ("wal", "idempotent") and options.choice.columnar
        open_it = partial(transactional_producer, options, name, columnar=columnar, topic=None)
        trying = Patience(seconds=timeouts.INIT_SECONDS)
        self._transactions = trying.retry(partial(open_it, timeout_ms=timeout_ms))

    @property
    def may_carry_rows(self) -> bool:
        """Whether no request of a transaction before can end one with rows before all is sent.

        It would commit half of an epoch, or winners without their decision. To a transaction of
        nothing but a cell it does no harm: all of it lies in one partition, in such an order that any
        first part is a cell as a whole (``KafkaRegister``), and what comes after its end is refused by
        the broker, since 3.6, which has this partition in no transaction then.
        """
        return not self._transactions.may_end_late

    def prepare(self, rows: Rows | None, records: Sequence[Record], partition: int) -> None:
        """Begin a transaction, and have the broker hold all of it: ``rows``, then ``records``.

        The cell's come last: readers of its partition wait from their first to the commit.

        Raises:
            AbsError: something is not held. The transaction is aborted, and nothing was changed.
        """
        try:
            self._transactions.begin()
            if rows is not None:
                rows(self._transactions)
            sender = self._transactions.to(self._topic, self.timeout_ms / 1000)
            for key, value in records:
                sender.send(single(key, value, partition=partition))
                sender.flush()  # one by one: several could make a batch that is too large
        except BaseException:
            self.give_up()
            raise

    def commit(self) -> None:
        """Commit what was prepared.

        Raises:
            TargetError: it may be committed, or not; this producer can be used no more.
        """
        try:
            self._transactions.commit()
        except BaseException:
            self.usable = False
            raise
        self.cell = self.next

    def give_up(self) -> None:
        """Abort what was prepared, at best effort; never raises."""
        self.usable = self._transactions.abort()


def register_id(topic: str, job: str) -> str:
    """The transactional id of a job's cell."""
    return f"abs-register.{topic}.{job}"


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

    def forget_topic(self) -> None:
        """It is not there any more: whoever writes next makes it anew."""
        with self._lock:
            self._topic = None

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
            FencedProducer(self.options, job, timeouts.CELL_TIMEOUT_MS)

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
