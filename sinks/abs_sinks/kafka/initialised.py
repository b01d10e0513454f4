"""What the producers of transactions have in common, and librdkafka's (``producer=librdkafka``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaException, Producer

from abs_clients.kafka.configs import producer_settings
from abs_clients.kafka.errors import translate_errors
from abs_core.model import HandleName
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records
from abs_sinks.kafka.sending import Failures, Sender

log = logging.getLogger(__name__)

INIT_SECONDS = 60.0
"""For how long a coordinator is waited for when a producer is initialised."""


class Sending(Protocol):
    """Sends the records of one task in one transaction; not thread-safe."""

    rows: int

    @property
    def digest(self) -> str:
        """Of keys and values, in the order in which they were given."""

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


class Initialised(Protocol):
    """A transactional id that was taken over, and has no transaction open."""

    def begin(self, patience: float) -> Sending:
        """Begin a transaction.

        Args:
            patience: seconds to wait for acknowledgements.
        """


Opener = Callable[[HandleName], Initialised]
"""Takes an id over, and aborts what is open under it. Raises ``TargetError``."""


@dataclass(frozen=True, slots=True)
class OverLibrdkafka:
    """One of librdkafka's producers, which holds connections of its own."""

    producer: Producer
    failures: Failures
    topic: str | None

    def begin(self, patience: float) -> Sending:
        with translate_errors("beginning a transaction"):
            self.producer.begin_transaction()
        return Sender(self.producer, self.failures, self.topic, patience)


def over_librdkafka(options: KafkaOptions, name: HandleName) -> Initialised:
    """Take an id over.

    Raises:
        TargetError: the coordinator refuses, or does not answer.
    """
    failures = Failures(options.kafka)
    given = producer_settings(options.kafka, str(name), failures.report, options.patience.seconds)
    # Of no use in a client that lives for an epoch: two requests of each.
    config = {"enable.metrics.push": "false", **given}
    with translate_errors(f"initialising transactional id {name}", options.kafka):
        producer = Producer(config)
        producer.init_transactions(INIT_SECONDS)
        if options.topic is not None:
            _acquaint(producer, options.topic)
    return OverLibrdkafka(producer, failures, options.topic)


def _acquaint(producer: Producer, topic: str) -> None:
    """Have the topic's partitions known now, not while a task waits.

    Only that: the producer asks again for what it does not know when records come, and tells then what
    is wrong. So a broker that is just stopping costs time here, and no task.
    """
    try:
        producer.list_topics(topic, INIT_SECONDS)
    except KafkaException as error:
        log.debug("looking at topic %s ahead of its records: %s", topic, error)
