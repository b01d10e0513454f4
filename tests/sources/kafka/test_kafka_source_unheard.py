"""A topic is not gone because one broker does not know it: others are asked, for a while, and once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from abs_clients.kafka import auth_check, timeouts
from abs_clients.kafka.admin import Admin
from abs_clients.kafka.attempts import header_of, side_topic
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.settings import Settings
from abs_core.errors import CorruptionError, RefusedError, ReplayMismatchError
from abs_core.model import HandleName
from abs_core.source import Limit
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_sources.kafka.attempt_filter import AttemptFilter, SideTopic
from abs_sources.kafka.lookup import Lookup, Topic
from abs_sources.kafka.offsets import Range, TopicOffsets

SETTINGS = Settings.of({"bootstrap.servers": "127.0.0.1:1"})
PLACE = TopicOffsets({"t": "an id"}, {("t", 0): 3})
THERE = {"t": "an id"}
FOUND = {"t": Topic("an id", (0,))}

Ask = Callable[[Lookup], dict[str, Topic]]
WAYS: dict[str, Ask] = {
    "by name": lambda asked: asked.topics(["t"], PLACE.ids),
    "by pattern": lambda asked: asked.matching("t|u", PLACE.ids),
}
ways = pytest.mark.parametrize("ask", WAYS.values(), ids=WAYS)


@dataclass
class Broker:
    """Stands for a client and the broker that it asks, which knows these topics, of one record each.

    Args:
        knows: id by name.
    """

    knows: Mapping[str, str] = field(default_factory=dict)
    asked: int = 0

    def describe_topics(self, wanted: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        self.asked += 1
        return {name: self._described(name) for name in wanted.topic_names}

    def _described(self, name: str) -> Future[Any]:
        future: Future[Any] = Future()
        if name in self.knows:
            partitions = [SimpleNamespace(id=0)]
            future.set_result(SimpleNamespace(topic_id=self.knows[name], partitions=partitions))
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return future

    def list_topics(self, **_: Any) -> Any:
        self.asked += 1
        return SimpleNamespace(topics=dict.fromkeys(self.knows))

    def list_offsets(self, asked: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        future: Future[Any] = Future()
        future.set_result(SimpleNamespace(offset=3))
        return dict.fromkeys(asked, future)

    def poll(self, seconds: float) -> int:
        return 0


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.0, 0.0))
    close_clusters()


def _among(monkeypatch: pytest.MonkeyPatch, *brokers: Broker) -> None:
    """New clients ask these brokers, one after the other; there may be no more clients than that."""
    waiting = iter(brokers)
    monkeypatch.setattr(auth_check, "AdminClient", lambda *_, **__: next(waiting))


def _source(**given: str) -> KafkaSource:
    fixed = {"kafka.bootstrap.servers": "127.0.0.1:1", "winners": "false"}
    return KafkaSource(KafkaSourceOptions.parse({**fixed, **given}))


@ways
def test_a_topic_that_was_there_is_there_if_another_broker_knows_it(
    monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    _among(monkeypatch, Broker(), Broker(), Broker(THERE))
    assert ask(Lookup(Admin(SETTINGS))) == FOUND


@ways
def test_a_topic_that_no_broker_knows_is_gone_and_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    last = Broker()
    _among(monkeypatch, Broker(), Broker(), last)
    asked = Lookup(Admin(SETTINGS))
    assert ask(asked) == {}
    before = last.asked
    assert ask(asked) == {}, "its place is kept, and planned with again and again"
    assert last.asked == before + 1


@ways
def test_a_topic_that_came_back_is_waited_for_again(
    monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    third = Broker()
    _among(monkeypatch, Broker(), Broker(), third, Broker(THERE))
    asked = Lookup(Admin(SETTINGS))
    assert ask(asked) == {}
    third.knows = THERE
    assert ask(asked) == FOUND
    third.knows = {}
    assert ask(asked) == FOUND


@ways
def test_another_topic_of_the_name_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    _among(monkeypatch, Broker({"t": "another id"}))
    assert ask(Lookup(Admin(SETTINGS))) == {"t": Topic("another id", (0,))}


def test_a_topic_that_was_not_there_or_that_the_pattern_leaves_out_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _among(monkeypatch, Broker())
    asked = Lookup(Admin(SETTINGS))
    assert asked.topics(["t"]) == {}
    assert asked.matching("u", PLACE.ids) == {}


@pytest.mark.parametrize("how", ["subscribe", "subscribePattern"])
def test_a_plan_does_not_end_where_one_broker_has_not_heard_of_its_topic(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    _among(monkeypatch, Broker(), Broker(THERE))
    assert _source(**{how: "t"}).latest(PLACE.text, Limit()) == PLACE.text


@pytest.mark.parametrize("how", ["subscribe", "subscribePattern"])
def test_a_plan_whose_topic_is_gone_is_an_error_or_goes_on_with_its_place(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    _among(monkeypatch, Broker(), Broker(), Broker())
    with pytest.raises(ReplayMismatchError, match="the topic t is gone"):
        _source(**{how: "t"}).latest(PLACE.text, Limit())
    lossy = _source(**{how: "t"}, failOnDataLoss="false")
    assert lossy.latest(PLACE.text, Limit()) == PLACE.text


def test_a_start_is_not_refused_where_one_broker_has_not_heard_of_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _among(monkeypatch, Broker(), Broker(THERE))
    assert TopicOffsets.parse(_source(subscribe="t").initial()) == PLACE


def test_a_start_is_refused_after_a_while_each_time_as_the_topic_may_be_made_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _among(monkeypatch, *[Broker()] * 4, Broker(THERE))
    with pytest.raises(RefusedError, match="there is no topic t"):
        _source(subscribe="t").initial()
    assert TopicOffsets.parse(_source(subscribe="t").initial()) == PLACE


def test_a_range_is_opened_where_one_broker_has_not_heard_of_its_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _among(monkeypatch, Broker(), Broker(THERE))
    reader = _source(subscribe="t").open(Range("t", "an id", 0, 0, 3).split)
    reader.close()


def test_a_range_whose_topic_is_gone_is_an_error_or_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _among(monkeypatch, Broker(), Broker(), Broker())
    split = Range("t", "an id", 0, 0, 3).split
    with pytest.raises(ReplayMismatchError, match="the topic t is gone"):
        _source(subscribe="t").open(split)
    reader = _source(subscribe="t", failOnDataLoss="false").open(split)
    assert reader.finished
    reader.close()


def test_winners_are_waited_for_where_a_broker_has_not_heard_of_them_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Broker(), Broker({side_topic("t"): "its id"})
    _among(monkeypatch, first, second)
    attempts = AttemptFilter(SideTopic(_source(subscribe="t").options, "t"))
    assert attempts.filter(_attempts()).undecided is not None
    assert first.asked == 1
    assert second.asked > 0


def test_attempts_without_a_side_topic_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _among(monkeypatch, *(Broker() for _ in range(20)))
    attempts = AttemptFilter(SideTopic(_source(subscribe="t").options, "t"))
    with pytest.raises(CorruptionError, match="no side topic"):
        attempts.filter(_attempts())


def _attempts() -> pa.BinaryArray:
    handle = HandleName("0123456789abcdef", "job", 1, 0, 0, "a")
    return pa.array([header_of(handle)[1]], pa.binary())
