"""The contract of both producers, and the functions that open the chosen one (``choice``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from abs_sinks.kafka.columnar.sender import ColumnarProducer
from abs_sinks.kafka.columnar.sender import outside_transactions as by_columns
from abs_sinks.kafka.headers import Header
from abs_sinks.kafka.librdkafka import LibrdkafkaProducer
from abs_sinks.kafka.librdkafka import outside_transactions as one_by_one
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records, by_topic


class RecordSender(Protocol):
    """Sends records to one topic, or to those they name. Not thread-safe; unusable after an error."""

    rows: int

    def send(self, records: Records) -> None:
        """Queue the records; returns before they are delivered.

        Raises:
            AbsError: an earlier record was not delivered.
        """

    def flush(self) -> None:
        """Wait until every record is acknowledged.

        Raises:
            AbsError: a record was not delivered, or the brokers did not answer in time.
        """

    def abort(self) -> None:
        """Send nothing more; records sent outside a transaction stay."""


class TransactionalProducer(Protocol):
    """A producer with an initialised transactional id: others are fenced, nothing is open under it.

    One transaction at a time; not thread-safe.
    """

    @property
    def may_end_late(self) -> bool:
        """Whether a late EndTxn of one transaction can end the next, of the same id and epoch."""
        ...

    def begin(self) -> None:
        """Begin a transaction; brokers see it with the first record."""

    def to(self, topic: str | None, patience: float) -> RecordSender:
        """A sender in the transaction.

        Args:
            topic: None: each record names its own.
            patience: seconds to wait for acknowledgements.
        """
        ...

    def commit(self) -> None:
        """Commit the flushed records.

        Raises:
            TargetError: the outcome is unknown, and this producer unusable.
        """

    def abort(self) -> bool:
        """Abort, at best effort; False: this producer is unusable."""


class ByTopic:
    """A ``RecordSender`` whose records may name other topics than the option's.

    Args:
        of: the sender to a topic.
    """

    def __init__(self, of: Callable[[str], RecordSender], topic: str) -> None:
        self.rows = 0
        self._of = of
        self._topic = topic
        self._senders = {topic: of(topic)}

    def send(self, records: Records) -> None:
        for topic, share in by_topic(records, self._topic):
            if topic not in self._senders:
                self._senders[topic] = self._of(topic)
            self._senders[topic].send(share)
        self.rows += records.rows

    def flush(self) -> None:
        for sender in self._senders.values():
            sender.flush()

    def abort(self) -> None:
        for sender in self._senders.values():
            sender.abort()


def sender_in(
    transactions: TransactionalProducer, options: KafkaOptions, patience: float
) -> RecordSender:
    """A sender in the transaction, of rows and their dead letters; see ``TransactionalProducer.to``."""
    if options.topic is None:
        return transactions.to(None, patience)
    return ByTopic(lambda topic: transactions.to(topic, patience), options.topic)


def transactional_producer(
    options: KafkaOptions,
    name: str,
    *,
    columnar: bool,
    topic: str | None,
    timeout_ms: int | None = None,
    two_phase: bool = False,
) -> TransactionalProducer:
    """Initialise a transactional id, which fences others and aborts its open transaction.

    Args:
        topic: written to, if known; its metadata is read now, since partitions may have been added.
        timeout_ms: of a transaction; None: as the settings say.
        two_phase: its transactions have no timeout (KIP-939); by the columnar producer only.

    Raises:
        TargetError: the coordinator refuses, or does not answer.
    """
    if columnar:
        return ColumnarProducer(options.kafka, name, topic, timeout_ms, two_phase=two_phase)
    assert not two_phase, "such options are refused (``choice``)"
    patience = options.patience.seconds
    return LibrdkafkaProducer(options.kafka, name, topic, patience, timeout_ms)


def outside_transactions(options: KafkaOptions, more: Sequence[Header]) -> RecordSender:
    """A sender to the option's topic whose records are visible at once.

    Args:
        more: headers added to each record.

    Raises:
        TargetError: no broker answers, or it refuses.
    """
    patience = options.patience.seconds
    if options.choice.columnar:
        assert options.topic is not None
        return by_columns(options.kafka, options.topic, patience, more)
    return one_by_one(options.kafka, options.topic, patience, more)
