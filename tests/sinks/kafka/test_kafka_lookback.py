"""A topic that goes back is told at a start; retention is no going back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.topics import topic_facts
from abs_core.errors import RegisterLostError, TargetWentBackError
from abs_core.model import JobState
from abs_services import KafkaService
from abs_sinks.kafka import lookback
from abs_sinks.kafka.mark import Ends, Topics
from abs_testing.case import JOB, Case, consent_in, raises, rows, within
from tests.kit.kafka import PARTITIONS, TopicHarness, delete_topics, make_topic
from tests.kit.kafka_modes import open_variant

pytestmark = pytest.mark.services
FIRST, SECOND, LAST = rows(0, 3), rows(10, 2), rows(30, 1)
WAYS = [
    "2pc",
    "wal",
    *(
        pytest.param(way, marks=pytest.mark.campaign)
        for way in ("2pc-foreign-register", "wal-foreign-register", "idempotent")
    ),
]


def noted(state: JobState) -> dict[str, Ends]:
    """What the newest epoch's mark says."""
    [shown] = state.recent[-1].shown
    return Topics.read(shown.mark).topics


def recreate(harness: TopicHarness) -> None:
    delete_topics(harness.options.kafka, [harness.topic])

    def gone() -> bool:
        return harness.topic not in topic_facts(harness.options.kafka, [harness.topic], again=True)

    assert within(60, gone)
    make_topic(harness.options.kafka, harness.topic)


def put(case: Case, state: JobState) -> None:
    run = case.run()
    run.store.compare_and_set(JOB, run.stored().version, state)


@pytest.mark.parametrize("way", WAYS)
def test_a_topic_that_was_created_again_is_told(kafka: KafkaService, way: str) -> None:
    kafka.start()
    with open_variant(kafka.bootstrap, way) as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        run.epoch(1, SECOND)
        case.run().begin(2)
        if way == "idempotent":  # its side topic tells first, and for good
            assert noted(run.state())[harness.topic].id is not None
            return
        recreate(harness)
        error = raises(TargetWentBackError, lambda: case.run().begin(2))
        assert "the 5 rows of the finished epoch(s) 0 to 1" in error.what
        case.run(adopt=consent_in(error)).epoch(2, LAST)
        case.run().begin(3)
        case.holds(LAST, when="after a topic was created again, by consent")


def test_ends_below_the_noted_ones_are_told_and_removed_records_are_not(
    kafka: KafkaService,
) -> None:
    kafka.start()
    with open_variant(kafka.bootstrap, "2pc") as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        run.epoch(1, SECOND)
        state = run.state()
        ends = noted(state)[harness.topic].ends
        assert len(ends) == PARTITIONS
        assert sum(ends) >= 5, "the ends are those before the epoch"
        # Retention, or a person, removes records: the ends stay.
        admin = cluster(harness.options.kafka).admin.opened()
        places = [TopicPartition(harness.topic, n, end) for n, end in enumerate(ends)]
        for answer in admin.delete_records(places).values():
            answer.result(60)
        case.run().begin(2)
        # Brokers that lost acknowledged records end where the register says that there were more.
        newest = state.recent[-1]
        topics = Topics({harness.topic: replace(noted(state)[harness.topic], ends=(ends[0] + 9,))})
        shown = (replace(newest.shown[0], mark=topics.to_text()),)
        put(
            case,
            replace(case.run().state(), recent=(*state.recent[:-1], replace(newest, shown=shown))),
        )
        error = raises(TargetWentBackError, lambda: case.run().begin(2))
        assert "the 2 rows of the finished epoch(s) 1." in error.what


def test_of_a_topic_with_very_many_partitions_the_id_alone_is_noted(
    kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.start()
    monkeypatch.setattr(lookback, "MAX_ENDS", PARTITIONS - 1)
    with open_variant(kafka.bootstrap, "2pc") as harness, Case(harness) as case:
        case.run().epoch(0, FIRST)
        seen = noted(case.run().state())[harness.topic]
        assert seen.id is not None
        assert seen.ends == ()
        case.run().begin(1)


def test_a_register_that_went_back_is_told_by_later_transactional_ids(kafka: KafkaService) -> None:
    kafka.start()
    with open_variant(kafka.bootstrap, "2pc") as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        older = run.state()
        case.run().epoch(1, SECOND)
        put(case, older)
        error = raises(RegisterLostError, lambda: case.run().begin(1))
        case.run(adopt=consent_in(error)).epoch(1, LAST)
        assert case.run().state().generation > 2
