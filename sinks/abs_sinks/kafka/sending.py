"""What the two ways to send have in common, and what opens the one that was chosen (``choice``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from abs_clients.kafka.format.headers import Header
from abs_sinks.kafka.columnar import ColumnarProducer
from abs_sinks.kafka.columnar import outside_transactions as by_columns
from abs_sinks.kafka.librdkafka import LibrdkafkaProducer
from abs_sinks.kafka.librdkafka import outside_transactions as one_by_one
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records


class RecordSender(Protocol):
    """Sends records to one topic, or to those that they name; not thread-safe.

    After an error it is of no use any more.
    """

    rows: int

    @property
    def digest(self) -> str:
        """Of keys and values, in the order in which they were given."""
        ...

    def send(self, records: Records) -> None:
        """Take the records; returns before they are delivered.

        Raises:
            AbsError: one before was not delivered.
        """

    def flush(self) -> None:
        """Return when every record is acknowledged.

        Raises:
            AbsError: one was not delivered, or the brokers did not answer in time.
        """

    def abort(self) -> None:
        """Send nothing more; what was sent stays, where it is in no transaction."""


class TransactionalProducer(Protocol):
    """A transactional id that was taken over: no other process holds it, and nothing is open under it.

    One transaction at a time; not thread-safe.
    """

    @property
    def may_end_late(self) -> bool:
        """Whether a commit that was answered may have left a request behind that comes late.

        It meets the next transaction then, which has the same producer id and epoch, and ends it.
        """
        ...

    def begin(self) -> None:
        """Begin a transaction; brokers hear of it with the first record."""

    def to(self, topic: str | None, patience: float) -> RecordSender:
        """What sends records to a topic, in the transaction.

        Args:
            topic: None: each record names its own.
            patience: seconds to wait for acknowledgements.
        """
        ...

    def commit(self) -> None:
        """Commit what was flushed.

        Raises:
            TargetError: it may be committed, or not; this is of no use any more.
        """

    def abort(self) -> bool:
        """Abort, at best effort; whether another transaction may be begun here."""


def transactional_producer(
    options: KafkaOptions,
    name: str,
    *,
    columnar: bool,
    topic: str | None,
    timeout_ms: int | None = None,
) -> TransactionalProducer:
    """Take a transactional id over, and abort what is open under it.

    Args:
        columnar: whether records are sent column by column.
        topic: that is written to, where it is known.
        timeout_ms: after which the broker ends a transaction on its own; None: the settings'.

    Raises:
        TargetError: the coordinator refuses, or does not answer.
    """
    if columnar:
        return ColumnarProducer(options.kafka, name, topic, timeout_ms)
    patience = options.patience.seconds
    return LibrdkafkaProducer(options.kafka, name, topic, patience, timeout_ms)


def outside_transactions(options: KafkaOptions, more: Sequence[Header]) -> RecordSender:
    """What sends records that are visible at once, to the topic of the options.

    Args:
        more: headers that each record gets besides its own.

    Raises:
        TargetError: no broker answers, or it refuses.
    """
    patience = options.patience.seconds
    if options.choice.columnar:
        assert options.topic is not None
        return by_columns(options.kafka, options.topic, patience, more)
    return one_by_one(options.kafka, options.topic, patience, more)
