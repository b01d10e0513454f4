"""A transaction hangs if its partition holds it for open and no coordinator does."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from abs_clients.kafka.cluster_facts import ClusterFacts
from abs_clients.kafka.topics import TopicFacts
from abs_clients.kafka.transactions import Description, State
from abs_services import KafkaService
from abs_sinks.kafka import preflight as hanging
from abs_sinks.kafka.preflight import (
    PartitionTransaction,
    find_hanging,
    findings_of_hanging,
    open_in,
    unknown,
)
from abs_testing.case import Case, rows
from tests.kit.kafka import PARTITIONS, TopicHarness, Variant, open_topic

ONE = PartitionTransaction("t", 0, 7, 100, 5)


@pytest.mark.parametrize(
    ("known", "hangs"),
    [
        ([], True),
        ([None], True),
        ([Description(State.ONGOING, 7, 0, 1, 1, (("t", 0),))], False),
        ([Description(State.ONGOING, 7, 0, 1, 1, (("t", 1),))], True),
        ([Description(State.ONGOING, 8, 0, 1, 1, (("t", 0),))], True),
        ([Description(State.PREPARE_COMMIT, 7, 0, 1, 1, (("t", 0),))], False),
    ],
)
def test_what_no_coordinator_has_open_there_hangs(
    known: list[Description | None], hangs: bool
) -> None:
    assert unknown([ONE], known) == ([ONE] if hangs else [])


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[TopicHarness]:
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc", own_register=False)) as harness:
        yield harness


@pytest.mark.services
def test_what_a_job_has_open_does_not_hang_and_what_its_coordinator_forgot_does(
    harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(harness)
    run = case.run()
    shares = run.tasks(0, rows(0, 9))
    settings, later = harness.options.kafka, round(time.time() * 1000) + 60_000
    places = [(harness.topic, number) for number in range(PARTITIONS)]
    there = open_in(settings, places)
    assert {each.partition for each in there} == set(range(PARTITIONS))
    assert find_hanging(settings, places, later) == [], "its coordinator knows it"
    assert find_hanging(settings, places, 0) == [], "and it is young"

    # A broker of today verifies, so that none can be made to hang: its coordinator is made to forget.
    monkeypatch.setattr(hanging, "listed", lambda *_, **__: {})
    assert find_hanging(settings, places, later) == there
    monkeypatch.setattr("abs_sinks.kafka.preflight.MARGIN_MS", -3_600_000)
    cluster = ClusterFacts(1, (("transaction.max.timeout.ms", "1"),), 2, True, None)
    topic = TopicFacts(harness.topic, PARTITIONS, 1)
    found = list(findings_of_hanging(topic, cluster, harness.options))
    assert len(found) == len(there)
    assert "kafka-transactions.sh abort" in found[0].remedy

    run.commit(0, shares)
    assert open_in(settings, places) == []
    case.close()
