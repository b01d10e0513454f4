"""A side topic that is lost, or lost and made anew: nobody takes its records for losers'."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest

from abs_audit import audit
from abs_audit.locate import relation
from abs_clients.kafka import timeouts
from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.topics import topic_facts
from abs_core.errors import CorruptionError
from abs_core.model import Severity
from abs_core.source import Limit
from abs_services import KafkaService
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_testing.case import Case, raises, rows
from tests.kit.command import abs_
from tests.kit.kafka import delete_topics, make_topic
from tests.kit.kafka_modes import AttemptHarness, open_attempts
from tests.kit.kafka_reading import settle

pytestmark = pytest.mark.services

ONE, TWO, THREE = rows(0, 9), rows(100, 9), rows(200, 9)
"""So many that each partition has some of each."""

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}


@pytest.fixture
def harness(kafka: KafkaService, monkeypatch: pytest.MonkeyPatch) -> Iterator[AttemptHarness]:
    """Of one broker, which is believed sooner than several."""
    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.1,) * 3)
    kafka.start()
    with open_attempts(kafka.bootstrap) as harness:
        yield harness


def lose(harness: AttemptHarness, *, anew: bool = False) -> None:
    """The side topic goes, and so does what this process knows of it."""
    name = side_topic(harness.topic)
    delete_topics(harness.options.kafka, [name])
    while name in topic_facts(harness.options.kafka, [name], again=True):
        pass
    if anew:
        make_topic(harness.options.kafka, name, 1, KEPT)
    close_clusters(harness.options.kafka)


def is_there(harness: AttemptHarness) -> bool:
    name = side_topic(harness.topic)
    return name in topic_facts(harness.options.kafka, [name], again=True)


def source(harness: AttemptHarness, **more: str) -> KafkaSource:
    settle(harness.options.kafka)
    given = {
        "kafka.bootstrap.servers": harness.bootstrap,
        "subscribe": harness.topic,
        "startingOffsets": "earliest",
        # What this process has read of winners already is not used.
        "kafka.client.id": f"new-{secrets.token_hex(4)}",
    }
    return KafkaSource(KafkaSourceOptions.parse({**given, **more}))


def read(source: KafkaSource) -> int:
    """How many records a new reader gets."""
    start, found = source.initial(), 0
    for split in source.splits(start, source.latest(start, Limit())):
        reader = source.open(split)
        try:
            while not reader.finished:
                batch = reader.read(1.0)
                found += 0 if batch is None else batch.num_rows
        finally:
            reader.close()
    return found


@pytest.mark.parametrize(
    ("who", "anew"),
    [
        ("the same job", False),
        ("the same job", True),
        ("another job", False),
        ("another token", True),
    ],
)
def test_no_job_goes_on_without_the_side_topic(
    case: Case, harness: AttemptHarness, anew: bool, who: str
) -> None:
    case.run("job@monday").epoch(0, ONE)
    lose(harness, anew=anew)
    job = {"the same job": "job@monday", "another job": "other", "another token": "job@tuesday"}[
        who
    ]
    refused = raises(
        CorruptionError, lambda: case.run(job).epoch(1 if job[4:] == "monday" else 0, TWO)
    )
    assert "created again" in refused.what if anew else "is gone" in refused.what
    assert refused.remedy
    assert is_there(harness) is anew, "it is not made again"
    told = [f.what for f in harness.new_sink().preflight(job) if f.severity is Severity.ERROR]
    assert any(side_topic(harness.topic) in what for what in told), told


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "created again"])
def test_an_epoch_is_not_decided_where_the_side_topic_was_lost_while_it_was_written(
    case: Case, harness: AttemptHarness, anew: bool
) -> None:
    run = case.run("job")
    run.epoch(0, ONE)
    shares = run.tasks(1, TWO)
    name = side_topic(harness.topic)
    delete_topics(harness.options.kafka, [name])
    if anew:
        make_topic(harness.options.kafka, name, 1, KEPT)
    raises(CorruptionError, lambda: run.commit(1, shares))


def test_a_job_of_another_protocol_takes_a_side_topic_that_a_person_has_made(
    harness: AttemptHarness,
) -> None:
    """Its register has a frontier, and nothing says that there was no side topic."""
    idempotent = harness.new_sink
    harness.new_sink = harness.sink_for(
        replace(harness.options, common=replace(harness.options.common, protocol="2pc"))
    )
    before = Case(harness)
    before.run("job").epoch(0, ONE)
    before.close()
    harness.new_sink = idempotent
    case = Case(harness)
    refused = raises(CorruptionError, lambda: case.run("job").epoch(1, TWO))
    assert "committed epochs up to 0" in refused.what
    assert f"make {side_topic(harness.topic)} by hand" in refused.remedy
    make_topic(harness.options.kafka, side_topic(harness.topic), 1, KEPT)
    case.run("job").epoch(1, TWO)
    case.run("job").epoch(2, THREE)
    assert sorted(harness.read()) == sorted([*ONE, *TWO, *THREE])
    case.close()


def test_a_topic_that_was_made_anew_gets_a_new_side_topic(
    case: Case, harness: AttemptHarness
) -> None:
    case.run("old").epoch(0, ONE)
    delete_topics(harness.options.kafka, [harness.topic])
    lose(harness)
    make_topic(harness.options.kafka, harness.topic)
    case.run("new").epoch(0, TWO)
    harness.look_anew()
    assert sorted(harness.read()) == sorted(TWO)


def test_readers_are_told_that_the_side_topic_is_gone(case: Case, harness: AttemptHarness) -> None:
    run = case.run("job")
    loser = run.attempt(0).write(*ONE)
    loser.pre_commit()
    run.epoch(0, ONE)
    assert read(source(harness, winners="true")) == len(ONE)
    lose(harness)
    for more in ({"winners": "true"}, {}):
        with pytest.raises(CorruptionError, match=r"side topic") as refused:
            read(source(harness, **more))
        assert refused.value.remedy
    assert read(source(harness, winners="false")) == 2 * len(ONE)

    url = f"kafka://{harness.bootstrap}/{harness.topic}?value=raw"
    for more_of_url in ("&winners=true", ""):
        with pytest.raises(CorruptionError, match=r"side topic"):
            audit(relation([url + more_of_url]), relation([url + more_of_url]))
    doubled = relation([f"{url}&winners=false"])
    assert audit(doubled, doubled).clean, "every record is read where that is asked for"

    register = f"kafka://{harness.bootstrap}/{harness.options.registertopic}"
    told = abs_("in-doubt", "list", "--url", register, "--attempts", harness.topic)
    assert isinstance(told.exception, CorruptionError)
    gave_up = abs_("in-doubt", "abort", "job", "--url", register, "--attempts", harness.topic)
    assert isinstance(gave_up.exception, CorruptionError)
    assert not is_there(harness)
