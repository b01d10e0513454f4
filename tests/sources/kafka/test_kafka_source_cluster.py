"""Three brokers, of which one dies or is stopped: the source goes on with the next leader."""

from __future__ import annotations

import time
from collections import Counter
from itertools import chain

import pytest
from confluent_kafka.admin import AdminClient

from abs_core.source import Limit, Reader
from abs_services.native.kafka import NativeKafka
from abs_testing.harness import Record
from tests import sample
from tests.kit.kafka_cluster import NativeKafkaCluster
from tests.kit.kafka_source import KafkaSourceHarness

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

EVERYTHING = Limit()
SECONDS = 60.0


@pytest.mark.campaign
@pytest.mark.parametrize("end", sample.members(["kill", "stop"], 1, "a new leader of a split"))
def test_a_split_is_read_on_from_the_new_leader_and_read_again_the_same(
    brokers: NativeKafkaCluster, end: str
) -> None:
    harness = KafkaSourceHarness(brokers.bootstrap)
    added = harness.add(40)
    source = harness.new_source()
    start = source.initial()
    splits = source.splits(start, source.latest(start, EVERYTHING))
    readers = [source.open(split) for split in splits]
    seen = [_next(harness, reader) for reader in readers]
    getattr(_leader(brokers, harness.topic), end)()
    for records, reader in zip(seen, readers, strict=True):
        records += _rest(harness, reader)
    assert Counter(chain(*seen)) == Counter(added), f"across {end} of a leader"
    more = harness.add(10)
    later = harness.new_source()
    now = later.latest(start, EVERYTHING)
    again = [_rest(harness, later.open(split)) for split in later.splits(start, now)]
    assert Counter(chain(*again)) == Counter([*added, *more]), f"after {end} of a leader"
    replayed = [_rest(harness, later.open(split)) for split in splits]
    assert replayed == seen, "a split is the same records for ever"


def _rest(harness: KafkaSourceHarness, reader: Reader) -> list[Record]:
    """What the reader has not given yet; closes it."""
    found: list[Record] = []
    deadline = time.monotonic() + SECONDS
    while not reader.finished:
        assert time.monotonic() < deadline, f"the reader stands at {reader.position}"
        found += _next(harness, reader)
    reader.close()
    return found


def _next(harness: KafkaSourceHarness, reader: Reader) -> list[Record]:
    batch = reader.read(SECONDS)
    return [] if batch is None else list(harness.records(batch))


def _leader(brokers: NativeKafkaCluster, topic: str) -> NativeKafka:
    """The broker that leads the topic's partition 0."""
    there = AdminClient({"bootstrap.servers": brokers.bootstrap}).list_topics(topic, SECONDS)
    return brokers.broker(there.topics[topic].partitions[0].leader)
