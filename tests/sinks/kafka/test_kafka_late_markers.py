"""Markers of a commit that come late, as on a busy broker: who looks at once sees nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from abs_services import Provider, services
from tests.kit import kafka_reading
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.kit.kafka_late_markers import LateMarkers
from tests.kit.kafka_reading import all_records, messages, new_reader
from tests.planted import planted

pytestmark = [pytest.mark.services, pytest.mark.long]

LATE = 1.0


@pytest.fixture(scope="module")
def broker() -> Iterator[LateMarkers]:
    if services().provider is not Provider.NATIVE:
        pytest.skip("the broker's listeners are not ours")
    with LateMarkers(LATE) as made:
        yield made


@pytest.fixture
def harness(broker: LateMarkers) -> Iterator[TopicHarness]:
    with open_topic(broker.bootstrap, Variant("2pc")) as opened:
        yield opened


def commit_one(harness: TopicHarness) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap, "transactional.id": harness.topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(harness.topic, b"value", b"1", 0)
    producer.commit_transaction(60)


def sees_one(harness: TopicHarness) -> None:
    """By each of the readers that tests share."""
    commit_one(harness)
    assert harness.hidden() == 0
    assert len(messages({"bootstrap.servers": harness.bootstrap}, harness.topic)) == 1
    with closing(new_reader(harness.bootstrap)) as reader:
        assert len(all_records(reader, harness.topic, harness.partitions)) == 1


def test_the_readers_of_tests_wait_for_markers(harness: TopicHarness) -> None:
    sees_one(harness)


def test_a_reader_that_looks_at_once_is_found(harness: TopicHarness) -> None:
    with planted(
        (kafka_reading, "settle", lambda brokers: None),
        (TopicHarness, "_await_markers", lambda self: None),
    ):
        sees_one(harness)
