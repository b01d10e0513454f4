"""A topic that ``protocol=idempotent`` wrote, as the source reads it: losers out, undecided not yet."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from abs_clients.kafka.attempts import Decided, header_of, side_topic
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.settings import Settings
from abs_core.errors import CorruptionError, OptionError, UnavailableError
from abs_core.model import HandleName
from abs_core.source import Limit, Offsets
from abs_services import KafkaService
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_sources.kafka import reader as readers
from abs_sources.kafka.attempt_filter import attempt_filter
from abs_sources.kafka.lookup import lookup
from abs_sources.kafka.undecided import undecided
from abs_testing.case import within
from abs_testing.ranges import SourceCase
from tests.kit.kafka_source import KafkaSourceHarness

pytestmark = pytest.mark.services

REGISTER = "0123456789abcdef"


class Attempts:
    """A topic of two partitions and its side topic, written as the sink would."""

    def __init__(self, kafka: KafkaService) -> None:
        kafka.start()
        self.topic = f"attempts-{secrets.token_hex(6)}"
        settings: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap}
        self.admin = AdminClient(settings)
        made = self.admin.create_topics(
            [NewTopic(self.topic, 2, 1), NewTopic(side_topic(self.topic), 1, 1)]
        )
        for answer in made.values():
            answer.result()
        both = [self.topic, side_topic(self.topic)]
        known = lookup(KafkaSourceOptions(Settings.of(settings)))
        # The controller answers before the broker.
        assert within(30, lambda: len(known.topics(both)) == 2)
        self._producer = Producer(settings)
        self._options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": self.topic}

    def source(self, **more: str) -> KafkaSource:
        given = {**self._options, "startingOffsets": "earliest", "winners": "true", **more}
        return KafkaSource(KafkaSourceOptions.parse(given))

    def write(self, epoch: int, attempt: str, values: Sequence[str]) -> HandleName:
        handle = HandleName(REGISTER, "job", 1, epoch, 0, attempt)
        for number, value in enumerate(values):
            self._producer.produce(
                self.topic, value.encode(), partition=number % 2, headers=[header_of(handle)]
            )
        self._producer.flush()
        return handle

    def decide(self, epoch: int, *winners: HandleName) -> None:
        decided = Decided(REGISTER, "job", 1, epoch, winners)
        self._producer.produce(side_topic(self.topic), decided.to_bytes(), decided.key)
        self._producer.flush()


@pytest.fixture
def attempts(kafka: KafkaService) -> Attempts:
    return Attempts(kafka)


def values_of(source: KafkaSource, start: Offsets, end: Offsets) -> list[str]:
    found: list[str] = []
    for split in source.splits(start, end):
        reader = source.open(split)
        while not reader.finished:
            batch = reader.read(1.0)
            found += [] if batch is None else batch.column("value").cast("string").to_pylist()
        reader.close()
    return sorted(found)


def test_losers_are_left_out_and_an_undecided_epoch_is_not_read_yet(attempts: Attempts) -> None:
    loser = attempts.write(0, "a", ["x0", "x1", "x2"])
    winner = attempts.write(0, "b", ["0", "1", "2"])
    attempts.write(1, "c", ["3", "4", "5", "6"])
    source = attempts.source()
    start = source.initial()
    assert source.latest(start, Limit()) == start, "nothing is decided"
    attempts.decide(0, winner)
    first = source.latest(start, Limit())
    assert values_of(source, start, first) == ["0", "1", "2"]
    assert source.latest(first, Limit()) == first, "epoch 1 is not decided"
    assert loser != winner


def test_what_tells_attempts_apart_is_not_handed_on_to_who_copies_the_records(
    attempts: Attempts,
) -> None:
    attempts.decide(0, attempts.write(0, "a", ["0"]))
    source = attempts.source(includeHeaders="true")
    start = source.initial()
    (split,) = source.splits(start, source.latest(start, Limit()))
    reader = source.open(split)
    headers: list[object] = []
    while not reader.finished:
        batch = reader.read(1.0)
        headers += [] if batch is None else batch.column("headers").to_pylist()
    reader.close()
    assert headers == [None]


def test_a_reader_without_an_end_waits_for_the_decision(attempts: Attempts) -> None:
    source = attempts.source()
    handle = attempts.write(0, "a", ["0"])
    (reader,) = [
        source.open(split)
        for split in source.splits(source.initial(), None)
        if split.source.endswith("-0")
    ]
    assert reader.read(0.5) is None
    before = reader.position
    attempts.decide(0, handle)
    batch = None
    for _ in range(50):
        batch = batch or reader.read(0.2)
    assert batch is not None
    assert batch.column("value").to_pylist() == [b"0"]
    assert reader.position != before
    reader.close()


def test_a_range_whose_winners_are_lost_is_an_error_in_a_new_process(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = attempts.write(0, "a", ["0", "1"])
    attempts.decide(0, handle)
    source = attempts.source()
    start = source.initial()
    end = source.latest(start, Limit())
    side = side_topic(attempts.topic)
    attempts.admin.delete_topics([side])[side].result()
    close_clusters()  # as a new process
    monkeypatch.setattr("abs_clients.kafka.timeouts.UNHEARD_PAUSES", (0.1,))
    with pytest.raises(CorruptionError, match="no side topic"):
        values_of(attempts.source(), start, end)


UNKNOWN: Future[Any] = Future()
"""A broker's answer for a topic of which it has not heard."""
UNKNOWN.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))


class Silent(Consumer):
    """No records arrive."""

    def consume(self, *_: object, **__: object) -> list[Message]:
        return []


def test_a_range_is_read_where_a_broker_has_not_heard_of_its_winners_yet(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts.decide(0, attempts.write(0, "a", ["0", "1"]))
    source = attempts.source()
    start = source.initial()
    end = source.latest(start, Limit())
    close_clusters()  # as a new process
    describe, unheard = AdminClient.describe_topics, [side_topic(attempts.topic)] * 2

    def described(client: AdminClient, topics: Any, **more: Any) -> Any:
        if not unheard or topics.topic_names != unheard[:1]:
            return describe(client, topics, **more)
        return {unheard.pop(): UNKNOWN}

    monkeypatch.setattr(AdminClient, "describe_topics", described)
    assert values_of(attempts.source(), start, end) == ["0", "1"]
    assert not unheard


@pytest.mark.timeout(60)
@pytest.mark.parametrize("asks", ["how far is decided", "who has won", "what is not decided"])
def test_a_partition_that_falls_silent_is_told_and_not_waited_for_without_an_end(
    attempts: Attempts, kafka: KafkaService, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    attempts.decide(0, attempts.write(0, "a", ["0"]))
    source = attempts.source(patience="1")
    start = source.initial()
    monkeypatch.setattr(readers, "Consumer", Silent)
    calls: dict[str, Callable[[], object]] = {
        "how far is decided": lambda: source.latest(start, Limit()),
        "who has won": lambda: attempt_filter(source.options, attempts.topic).winners(),
        "what is not decided": lambda: undecided(
            {"bootstrap.servers": kafka.bootstrap}, attempts.topic, 1.0
        ),
    }
    with pytest.raises(UnavailableError, match=f"{attempts.topic}.*: no records arrived"):
        calls[asks]()


def test_what_is_to_be_read_of_such_a_topic_must_be_said(
    attempts: Attempts, kafka: KafkaService
) -> None:
    unsaid = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": attempts.topic}
    with pytest.raises(OptionError, match="was written by protocol=idempotent"):
        KafkaSource(KafkaSourceOptions.parse(unsaid)).initial()


def test_records_of_nobody_s_attempt_count(kafka: KafkaService) -> None:
    kafka.start()
    harness = KafkaSourceHarness(kafka.bootstrap, {"winners": "true"})
    start, end, added = SourceCase(harness, lambda: pytest.fail("one is enough")).filled(10)
    assert sorted(values_of(harness.new_source(), start, end)) == sorted(  # type: ignore[arg-type]
        value.decode() for value in added if isinstance(value, bytes)
    )
