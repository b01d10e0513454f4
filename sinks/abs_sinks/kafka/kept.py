"""The dead letters in a topic (``abs_sinks.appended``); an id is ``partition:offset``."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition

from abs_clients.kafka import timeouts
from abs_clients.kafka.codes import CONSUMER_RETRIES, UNHEARD
from abs_clients.kafka.configs import consumer_settings
from abs_clients.kafka.errors import to_abs_error, translate_errors
from abs_clients.kafka.topics import topics_in_time
from abs_core.errors import SchemaError, UnavailableError
from abs_sinks.appended import AppendedLetters
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.tail import log_offsets
from abs_sinks.kafka.sink import KafkaSink


class KafkaLetters(AppendedLetters):
    """Args:
    options: of the sink; ``deadletter`` names the topic.
    """

    def __init__(self, options: KafkaOptions) -> None:
        assert options.letters is not None
        self._options = options
        self._topic = options.letters

    @property
    def _place(self) -> str:
        return f"topic {self._topic}"

    def _sink(self, schema: pa.Schema) -> KafkaSink:
        return KafkaSink(self._options, schema)

    def _read(self) -> Iterator[tuple[str, bytes]]:
        settings = self._options.kafka
        facts = topics_in_time(settings, [self._topic], again=True).get(self._topic)
        if facts is None:
            raise SchemaError(
                f"Topic {self._topic} does not exist.", remedy="name that of the dead letters."
            )
        ours = {"group.id": "abs-deadletters", "isolation.level": "read_committed"}
        with translate_errors(f"reading {self._place}", settings):
            consumer = Consumer(consumer_settings(settings, {}, ours))
        try:
            for partition in range(facts.partitions):
                yield from self._records(consumer, partition)
        finally:
            consumer.close()

    def _records(self, consumer: Consumer, partition: int) -> Iterator[tuple[str, bytes]]:
        """A partition's records up to where it ends now."""
        settings, where = self._options.kafka, f"{self._topic}-{partition}"
        look = self._options.patience.retry(lambda: log_offsets(settings, self._topic, partition))
        assert look is not None, "the topic was there"
        at = look.first
        consumer.assign([TopicPartition(self._topic, partition, at)])
        deadline = time.monotonic() + timeouts.NEW_READER_SECONDS
        # What is open now may be a running job's; its letters are not there yet.
        while at < look.stable:
            message = consumer.poll(0.1)
            if message is None:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"{where} is read up to offset {at} of {look.stable}, and no more comes.",
                        remedy="see whether the brokers are up.",
                    )
                continue
            deadline = time.monotonic() + timeouts.NEW_READER_SECONDS
            offset, error = message.offset(), message.error()
            if error is None:
                assert offset is not None
                at = offset + 1
                yield f"{partition}:{offset}", message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                at = max(at, offset or 0)
            elif not error.retriable() and error.code() not in CONSUMER_RETRIES | UNHEARD:
                raise to_abs_error(error, f"reading {where}", settings)
