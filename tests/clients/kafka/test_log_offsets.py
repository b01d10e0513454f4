"""Where a partition ends is told by its leader; one that has not heard of it is asked again."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from abs_core.errors import UnavailableError
from abs_core.patience import Patience
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.tail import Extent, log_offsets
from abs_testing.case import within
from tests.kit.kafka import delete_topics, make_topic

pytestmark = [pytest.mark.services]


@pytest.fixture
def options(kafka: KafkaService, topic: str) -> KafkaOptions:
    return KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic})


def test_the_end_is_what_the_next_record_gets(options: KafkaOptions, topic: str) -> None:
    make_topic(options.kafka, topic)
    assert _ends(options, topic, 0) == (0, 0)
    producer = Producer({"bootstrap.servers": options.kafka.bootstrap})
    for _ in range(3):
        producer.produce(topic, value=b"v", partition=0)
    producer.flush()
    assert _ends(options, topic, 0) == (0, 3)
    assert _ends(options, topic, 1) == (0, 0)


def test_a_leader_that_knows_no_such_partition_is_not_believed_at_once(
    options: KafkaOptions, topic: str
) -> None:
    """Of a new topic one broker may have heard, and its leader not yet: that ends no job."""
    make_topic(options.kafka, topic)
    assert _ends(options, topic, 0) == (0, 0)
    delete_topics(options.kafka, [topic])  # its leader is remembered
    deadline = time.monotonic() + 30.0
    told = []
    while True:
        assert time.monotonic() < deadline
        try:
            if log_offsets(options.kafka, topic, 0) is None:
                break
        except UnavailableError as error:
            told.append(str(error))
    # Which words it takes depends on how far the broker is with the deletion.
    assert told, "the remembered leader's answer alone was taken for the topic's end"


def test_a_topic_that_is_made_anew_has_another_id(options: KafkaOptions, topic: str) -> None:
    make_topic(options.kafka, topic)
    before = _extent(options, topic, 0)
    assert before is not None
    assert before.topic_id
    assert before == _extent(options, topic, 0)
    delete_topics(options.kafka, [topic])
    assert within(30, lambda: _extent(options, topic, 0) is None)
    make_topic(options.kafka, topic)
    assert within(30, lambda: _extent(options, topic, 0) is not None)
    after = _extent(options, topic, 0)
    assert after is not None
    assert after.topic_id not in ("", before.topic_id)


def _ends(options: KafkaOptions, topic: str, partition: int) -> tuple[int, int] | None:
    found = _extent(options, topic, partition)
    return None if found is None else (found.first, found.end)


def _extent(options: KafkaOptions, topic: str, partition: int) -> Extent | None:
    """With the patience of the register: a new topic comes to be known broker by broker."""
    return Patience(30.0, first_pause=0.01).retry(
        lambda: log_offsets(options.kafka, topic, partition)
    )
