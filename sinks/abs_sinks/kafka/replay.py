"""The dead letters in a topic (``abs_sinks.deadletters.replay``); an id is ``partition:offset``.

Of ``protocol=idempotent`` those of decided attempts are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from abs_clients.kafka import timeouts
from abs_clients.kafka.attempts import HEADER, Winners, attempt_of, side_topic
from abs_clients.kafka.codes import CONSUMER_RETRIES, UNHEARD
from abs_clients.kafka.configs import consumer_settings
from abs_clients.kafka.errors import to_abs_error, translate_errors
from abs_clients.kafka.topics import topic_facts, topics_in_time
from abs_core.errors import SchemaError, UnavailableError
from abs_core.model import HandleName
from abs_sinks.deadletters.replay import AppendedLetters
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.tail import log_offsets
from abs_sinks.kafka.sink import KafkaSink


class KafkaLetters(AppendedLetters):
    """Args:
    options: of the sink; ``deadletter`` names the topic.
    texts: the options as text, to which letters add how they are written; None: they do not.
    """

    def __init__(self, options: KafkaOptions, texts: Mapping[str, str] | None = None) -> None:
        assert options.letters is not None
        self._options = options
        self._texts = texts
        self._topic = options.letters

    @property
    def _target(self) -> str:
        return self._options.topic or "*"

    @property
    def _place(self) -> str:
        return f"topic {self._topic}"

    def _sink(self, schema: pa.Schema, written: Mapping[str, str]) -> KafkaSink:
        if self._texts is None or not written:
            return KafkaSink(self._options, schema)
        return KafkaSink(KafkaOptions.parse({**written, **self._texts}), schema)

    def _read(self) -> Iterator[tuple[str, bytes]]:
        settings = self._options.kafka
        side = side_topic(self._topic)
        facts_of = topics_in_time(settings, [self._topic], again=True)
        facts_of |= topic_facts(settings, [side], again=True)
        if (facts := facts_of.get(self._topic)) is None:
            raise SchemaError(
                f"Topic {self._topic} does not exist.", remedy="name that of the dead letters."
            )
        # So long a broker holds a fetch at the end of a partition, and the next one waits for it.
        waits = {"fetch.wait.max.ms": 20}
        ours = {"group.id": "abs-deadletters", "isolation.level": "read_committed"}
        with translate_errors(f"reading {self._place}", settings):
            consumer = Consumer(consumer_settings(settings, waits, ours))
        try:
            winners = Winners(there=side in facts_of)
            for message in self._records(consumer, side, 0) if side in facts_of else ():
                winners.read([message.value()])
            for partition in range(facts.partitions):
                for message in self._records(consumer, self._topic, partition):
                    attempt = _attempt_of(message)
                    # What is not decided is not there yet.
                    if attempt is None or winners.counts(attempt):
                        yield f"{partition}:{message.offset()}", message.value() or b""
        finally:
            consumer.close()

    def _records(self, consumer: Consumer, topic: str, partition: int) -> Iterator[Message]:
        """A partition's records up to where it ends now."""
        settings, where = self._options.kafka, f"{topic}-{partition}"
        look = self._options.patience.retry(lambda: log_offsets(settings, topic, partition))
        assert look is not None, "the topic was there"
        at = look.first
        consumer.assign([TopicPartition(topic, partition, at)])
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
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                at = max(at, offset or 0)
            elif not error.retriable() and error.code() not in CONSUMER_RETRIES | UNHEARD:
                raise to_abs_error(error, f"reading {where}", settings)


def _attempt_of(message: Message) -> HandleName | None:
    value = dict(message.headers() or ()).get(HEADER)
    return attempt_of(value.encode() if isinstance(value, str) else value)
