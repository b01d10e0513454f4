"""A process's clients for one register topic, and the fenced producer of each job's cell.

They are kept open, because opening one costs 60 ms. A cell has one transactional id
(``abs-register.<topic>.<job>``), so opening its producer fences all older ones (KIP-98): no transaction
of a fenced producer can commit, however late its requests come. While a producer is not fenced, the
cell holds what it wrote last.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock, RLock

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.producer_ids import describe_producers, init_producer_id
from abs_clients.kafka.topics import TopicFacts
from abs_clients.kafka.transactions import State, describe, listed
from abs_core.contracts import Version
from abs_core.crash import CrashPoint
from abs_core.errors import FencedError, RefusedError, RowError, UnavailableError
from abs_core.patience import Patience
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import single
from abs_sinks.kafka.register.tail import Tail
from abs_sinks.kafka.register.topic import Record, StoredCell, find_topic, make_topic
from abs_sinks.kafka.sending import TransactionalProducer, transactional_producer

log = logging.getLogger(__name__)

_PREFIX = "abs-register."
_IDS = r"abs-register\..*"
"""The transactional ids of cells, as a regular expression."""

KEPT_PRODUCERS = 4
"""Most producers kept open; a batch job has one per token."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Records that are written in the transaction that changes a cell.

    Args:
        send: sends them in an open transaction, and waits for their acknowledgement; called once for
            each transaction that is tried.
        timeout_ms: of the transaction.
        point: reached when everything is sent and nothing committed.
    """

    send: Callable[[TransactionalProducer], None]
    timeout_ms: int = timeouts.CELL_TIMEOUT_MS
    point: CrashPoint | None = None


class FencedProducer:
    """The producer of a job's cell; opening it fences older ones. Not thread-safe.

    ``cell`` is the cell while this producer is not fenced: as it wrote it last (``has_written``), or as
    it was read, which a transaction has to confirm (``begins_at``).

    Args:
        options: those of the job that writes the cell; see ``fits``.
        timeout_ms: of a transaction.

    Raises:
        TargetError: it could not be opened.
    """

    def __init__(self, options: KafkaOptions, job: str, timeout_ms: int) -> None:
        self.cell: StoredCell | None = None
        self.timeout_ms = timeout_ms
        self.usable = True
        self.has_written = False
        self._topic, self._job = options.registertopic, job
        self._settings = options.kafka
        self._name = name = register_id(options.registertopic, job)
        self._columnar = _by_columns(options)
        self._transactions = Patience(seconds=timeouts.INIT_SECONDS).retry(
            lambda: transactional_producer(
                options, name, columnar=self._columnar, topic=None, timeout_ms=timeout_ms
            )
        )

    def fits(self, options: KafkaOptions, timeout_ms: int) -> bool:
        """Whether these options would open the same kind of producer, with this timeout or longer."""
        return self._columnar is _by_columns(options) and self.timeout_ms >= timeout_ms

    @property
    def version(self) -> Version | None:
        """The cell's, as this producer read or wrote it last."""
        return None if self.cell is None else self.cell.version

    @property
    def may_carry_rows(self) -> bool:
        """Whether no late EndTxn of an earlier transaction can commit half of one with rows.

        A transaction of a cell alone is safe: it is in one partition, any prefix of it leaves a whole
        cell (``KafkaRegister``), and brokers since 3.6 refuse records after the transaction's end.
        """
        return not self._transactions.may_end_late

    def prepare(self, rows: Rows | None, records: Sequence[Record], partition: int) -> None:
        """Send ``rows`` and ``records`` in a new transaction, and wait for their acknowledgement.

        The cell's records come last: readers of its partition wait from the first of them on.

        Raises:
            AbsError: a record was not delivered; the transaction is aborted, and nothing changed.
        """
        try:
            self._transactions.begin()
            if rows is not None:
                rows.send(self._transactions)
            sender = self._transactions.to(self._topic, self.timeout_ms / 1000)
            try:
                for key, value in records:
                    sender.send(single(key, value, partition=partition))
                    sender.flush()  # one by one: several could make a batch that is too large
            except RowError as error:
                raise RefusedError(
                    f"Topic {self._topic}, which holds the job's register, does not take its "
                    f"record: {error.what}",
                    job=self._job,
                    remedy="compare the topic's settings with those of a new register's topic: it "
                    "takes records as large as a decision, at any time. No row of the job is wrong.",
                ) from error
        except BaseException:
            self.give_up()
            raise

    def begins_at(self, partition: int) -> int:
        """The offset of the prepared transaction's first record in a partition.

        Raises:
            FencedError: the transaction is not open any more: another has opened the producer.
            UnavailableError: the partition's leader is not found.
        """
        place = (self._topic, partition)

        def ask() -> int:
            now = describe(self._settings, [self._name])[self._name]
            if now is None or now.state is not State.ONGOING:
                raise FencedError(f"The transaction {self._name} is not open any more.")
            state = describe_producers(self._settings, [place], now.producer_id)[place]
            if state is None or state.epoch != now.epoch or state.start_offset < 0:
                raise UnavailableError(
                    f"The broker that answered for {place[0]}/{partition} leads it no longer."
                )
            return state.start_offset

        return Patience(timeouts.LEADER_SECONDS, first_pause=0.01).retry(ask)

    def commit(self) -> None:
        """Commit; after a ``TargetError`` the outcome is unknown, and this producer unusable."""
        try:
            self._transactions.commit()
        except BaseException:
            self.usable = False
            raise
        self.has_written = True

    def give_up(self) -> None:
        """Abort the transaction, at best effort; never raises."""
        self.usable = self._transactions.abort()


def register_id(topic: str, job: str) -> str:
    """The transactional id of a job's cell."""
    return f"{_PREFIX}{topic}.{job}"


def _by_columns(options: KafkaOptions) -> bool:
    """Whether the columnar producer writes the cell of a job with these options."""
    # For an epoch's rows or winners librdkafka would need a new producer per epoch
    # (``may_carry_rows``), which takes half a second and more.
    return options.protocol in ("wal", "idempotent") and options.choice.columnar


class Session:
    """Clients, opened when needed. Thread-safe.

    Jobs of different options share it: of ``options`` it keeps what ``session_of`` finds it by.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._settings = options.kafka
        self._name = options.registertopic
        self._lock = Lock()
        self._topic: TopicFacts | None = None
        self._tails: dict[int, Tail] = {}
        self._producers: OrderedDict[str, FencedProducer] = OrderedDict()
        self._turns: defaultdict[str, RLock] = defaultdict(RLock)

    def turn(self, job: str) -> RLock:
        """The lock of a cell: threads of a process share its producer."""
        with self._lock:
            return self._turns[job]

    def tail(self, partition: int) -> Tail:
        with self._lock:
            if partition not in self._tails:
                # It raises at once if authentication fails.
                cluster(self._settings).admin.opened()
                self._tails[partition] = Tail(self._settings, self._name, partition)
            return self._tails[partition]

    def topic(self) -> TopicFacts:
        """The topic, created if missing and checked once."""
        with self._lock:
            if self._topic is None:
                self._topic = make_topic(self._settings, self._name)
            return self._topic

    def topic_exists(self) -> bool:
        """Whether the topic exists now; else the next write creates it. Raises as ``find_topic``."""
        topic = find_topic(self._settings, self._name)
        if topic is None:
            with self._lock:
                self._topic = None
        return topic is not None

    def producer(self, job: str) -> FencedProducer | None:
        """The job's usable open producer. The caller holds its ``turn``."""
        with self._lock:
            producer = self._producers.get(job)
            if producer is not None and not producer.usable:
                del self._producers[job]
                return None
            return producer

    def open_producer(self, options: KafkaOptions, job: str, timeout_ms: int) -> FencedProducer:
        """Open the job's producer, which fences all others. The caller holds its ``turn``."""
        opened = FencedProducer(options, job, timeout_ms)
        with self._lock:
            self._producers[job] = opened
            self._producers.move_to_end(job)
            while len(self._producers) > KEPT_PRODUCERS:
                # A thread that uses one keeps it alive.
                self._producers.popitem(last=False)
        return opened

    def end_writers(self, partition: int) -> None:
        """Abort the open transactions on cells of this partition, of any job.

        A coordinator waits for nobody between its cell's record and the commit, so one that blocks
        others for seconds is dead, or must try again. A commit that the broker has is not undone.
        """
        place = self._name, partition
        listing = listed(self._settings, (State.ONGOING,), pattern=_IDS)
        descriptions = describe(
            self._settings, sorted(id_ for id_ in listing if id_.startswith(_PREFIX))
        )
        for name, seen in descriptions.items():
            if seen is not None and place in seen.partitions:
                log.warning("ending the open transaction %s, because it blocks other jobs", name)
                init_producer_id(self._settings, name)

    def close(self) -> None:
        """Close all clients; the next use opens new ones. Transactions stay open."""
        with self._lock:
            for tail in self._tails.values():
                tail.close()
            self._tails, self._topic = {}, None
            self._producers.clear()


def session_of(options: KafkaOptions) -> Session:
    """This process's session for these brokers and this topic."""
    key = "register", options.registertopic
    return cluster(options.kafka).kept(key, lambda: Session(options))
