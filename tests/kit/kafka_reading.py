"""Reads a topic to its ends, by either client, without the half second that brokers wait at an end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Partition
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import State, listed
from abs_core.patience import Patience
from abs_testing.case import within

READ_SECONDS = 120.0
"""For how long a read waits for markers that are just being written."""

ENDING = (State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE)
"""States of a transaction whose end is decided, and whose markers are being written."""

_AT_AN_END_MS = 20


def settle(brokers: Settings | str) -> None:
    """Wait until no transaction on these brokers lacks markers of its end.

    Brokers answer to a commit before they write its markers: who looks at once may see nothing of it.

    Args:
        brokers: their address, or settings of a client that may see the transactions.
    """
    settings = Settings.of({"bootstrap.servers": brokers}) if isinstance(brokers, str) else brokers
    # A broker that was away is back before its coordinator is.
    patience = Patience(seconds=READ_SECONDS)
    settled = within(READ_SECONDS, lambda: not patience.retry(lambda: listed(settings, ENDING)))
    assert settled, f"they get no markers: {listed(settings, ENDING)}"


def new_reader(bootstrap: str, isolation: str = "read_committed") -> KafkaConsumer:
    """kafka-python's consumer, which has no code in common with librdkafka."""
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation,
        enable_auto_commit=False,
        group_id=None,
        fetch_max_wait_ms=_AT_AN_END_MS,
    )


def records_to(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]) -> list[ConsumerRecord]:
    """All records before these ends, in the order of each partition."""
    consumer.assign(list(ends))
    consumer.seek_to_beginning(*ends)
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + READ_SECONDS
    while any(consumer.position(place) < end for place, end in ends.items()):
        assert time.monotonic() < deadline, f"cannot read up to {ends}"
        for records in consumer.poll(timeout_ms=100).values():
            found += records
    return found


def all_records(consumer: KafkaConsumer, topic: str, partitions: int) -> list[ConsumerRecord]:
    """What its isolation lets it read, in the order of each partition; after ``settle``."""
    settle(consumer.config["bootstrap_servers"])
    places = [TopicPartition(topic, number) for number in range(partitions)]
    return records_to(consumer, consumer.end_offsets(places, timeout_ms=READ_SECONDS * 1000))


def messages(settings: Mapping[str, Any], topic: str, *partitions: int) -> list[Message]:
    """All committed records, as librdkafka reads them, partition by partition; after ``settle``.

    Args:
        settings: with the address of a broker.
        partitions: none: all that the topic has.
    """
    settle(Settings.of(settings))
    consumer = Consumer(
        {
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": _AT_AN_END_MS,
            **settings,
        }
    )
    found, ended = list[Message](), set[int | None]()
    try:
        there = partitions or tuple(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([Partition(topic, number, 0) for number in there])
        while len(ended) < len(there):
            message = consumer.poll(READ_SECONDS)
            assert message is not None, f"{topic} cannot be read to its end"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    finally:
        consumer.close()
    return found
