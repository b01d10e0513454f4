"""A broker that has not heard of a topic yet, of which others have: that ends no job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from abs_clients.kafka import topics
from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.format.recordbatch import Identity
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import TopicFacts
from abs_core.errors import RowError, SchemaError, UnavailableError
from abs_core.patience import Patience
from abs_sinks.kafka import winners
from abs_sinks.kafka.columnar.encoder import Encoder
from abs_sinks.kafka.fit import Fit
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records, plan_columns, records_of
from abs_sinks.kafka.register import KafkaRegister
from abs_sinks.kafka.register_tail import MissingError

OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "protocol": "idempotent"}
)
SIDE = side_topic("t")


@pytest.mark.parametrize("unheard", ["t", SIDE])
def test_settings_of_a_topic_that_was_just_seen_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, unheard: str
) -> None:
    seen = {name: TopicFacts(name, 1, 1) for name in ("t", SIDE)}
    monkeypatch.setattr(winners, "topic_facts", lambda *_, **__: seen)
    monkeypatch.setattr(winners, "topics_in_time", lambda *_, **__: dict(seen))
    monkeypatch.setattr(winners, "topic_config", _knows_all_but(unheard))
    with pytest.raises(UnavailableError, match=f"topic {unheard} yet"):
        winners.findings(OPTIONS)


def test_settings_of_a_topic_that_nobody_has_seen_are_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(winners, "topic_facts", lambda *_, **__: {})
    monkeypatch.setattr(winners, "topic_config", _knows_all_but("t"))
    with pytest.raises(SchemaError):
        winners.side_config(OPTIONS.kafka, "t")


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What brokers answer, one after another; the last one for ever. They are asked without a pause."""
    answers: list[Any] = []
    monkeypatch.setattr(topics, "run", lambda *_: answers.pop(0) if answers[1:] else answers[0])
    monkeypatch.setattr(topics, "APPEARS", Patience(5.0, first_pause=0.0))
    monkeypatch.setattr(topics, "_known", {})
    return answers


COMPACTED = [SimpleNamespace(name="cleanup.policy", value="compact")]


def test_a_broker_that_has_not_heard_of_a_topic_does_not_hide_that_it_is_compacted(
    brokers: list[Any],
) -> None:
    brokers += [_seen("t"), _settings(3)] * 2 + [_seen("t"), _settings(0, COMPACTED)]
    assert topics.topic_facts(OPTIONS.kafka, ["t"])["t"].compacted


def test_a_topic_that_is_deleted_while_it_is_looked_at_is_not_there(brokers: list[Any]) -> None:
    brokers += [_seen("t"), _settings(3), _seen()]
    assert topics.topic_facts(OPTIONS.kafka, ["t"]) == {}


@pytest.mark.parametrize("code", [3, 7, 14])
def test_settings_that_no_broker_tells_are_not_taken_for_the_defaults(
    brokers: list[Any], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(topics, "APPEARS", Patience(0.0))
    brokers += [_seen("t"), _settings(code)] * (2 if code == 3 else 1)
    brokers += [_seen("t"), _settings(0, COMPACTED)]
    with pytest.raises(UnavailableError):
        topics.topics_in_time(OPTIONS.kafka, ["t"])
    assert topics.topic_facts(OPTIONS.kafka, ["t"])["t"].compacted


@pytest.mark.parametrize("code", [29, 31])
def test_a_topic_whose_settings_may_not_be_read_is_there_all_the_same(
    brokers: list[Any], code: int
) -> None:
    brokers += [_seen("t"), _settings(code)]
    assert topics.topic_facts(OPTIONS.kafka, ["t"])["t"].configs == ()


def test_a_topic_that_the_first_brokers_have_not_heard_of_is_written_to(
    brokers: list[Any],
) -> None:
    brokers += [_seen(), _seen(), _seen(), _seen("t"), _settings(0)]
    Fit(OPTIONS).check(_record(None), 0)


def test_a_row_may_name_a_topic_that_the_first_brokers_have_not_heard_of(
    brokers: list[Any],
) -> None:
    brokers += [_seen(), _seen(), _seen(), _seen("t"), _settings(0)]
    Fit(replace(OPTIONS, topic=None)).check(_record("t"), 0)


def test_a_transaction_is_encoded_although_its_topic_is_not_seen_at_once(
    brokers: list[Any],
) -> None:
    brokers += [_seen(), _seen(), _seen("t"), _settings(0)]
    encoder = Encoder(OPTIONS, Identity("id", 1, 0))
    encoder.gather(_record(None))
    assert [batch.count for batch in encoder.batches()] == [1]


def test_a_compacted_topic_is_refused_although_it_is_not_seen_at_once(
    brokers: list[Any],
) -> None:
    brokers += [_seen(), _seen(), _seen("t"), _settings(0, COMPACTED), _seen()]
    (told,) = winners.findings(OPTIONS)
    assert "compacted" in told.what


def test_a_topic_that_no_broker_knows_is_told_after_a_while(
    brokers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "APPEARS", Patience(0.05, first_pause=0.0))
    brokers += [_seen()]
    with pytest.raises(SchemaError, match="Topic t does not exist"):
        Fit(OPTIONS).check(_record(None), 0)
    with pytest.raises(RowError, match="names a topic that does not exist"):
        Fit(replace(OPTIONS, topic=None)).check(_record("t"), 0)


@dataclass
class HalfKnown:
    """Stands in for a register's session: its reader has not heard of the topic."""

    there: bool
    forgotten: int = 0

    def tail(self, partition: int) -> HalfKnown:
        return self

    def all(self, patience: float) -> None:
        raise MissingError("There is no topic, as far as this client has heard.")

    def topic_exists(self) -> bool:
        return self.there

    def forget_readers(self) -> None:
        self.forgotten += 1


def test_a_register_that_one_client_has_not_heard_of_is_not_taken_for_empty() -> None:
    session: Any = HalfKnown(there=True)
    with pytest.raises(MissingError):
        KafkaRegister(OPTIONS, session).jobs()
    assert session.forgotten == 1


def test_a_register_that_nobody_has_heard_of_holds_no_job() -> None:
    session: Any = HalfKnown(there=False)
    assert KafkaRegister(OPTIONS, session).jobs() == []


def _record(topic: str | None) -> Records:
    columns = {"value": ["v"]} if topic is None else {"value": ["v"], "topic": [topic]}
    batch = pa.record_batch(columns)
    return records_of(batch, plan_columns(batch.schema, "t" if topic is None else None))


def _seen(*names: str) -> Any:
    partition = SimpleNamespace(replica_nodes=[1])
    return SimpleNamespace(
        topics=[
            SimpleNamespace(
                name=name,
                error_code=0,
                partitions=[partition],
                authorized_operations={31},
                topic_id=None,
            )
            for name in names
        ]
    )


def _settings(code: int, configs: list[Any] | None = None) -> Any:
    result = SimpleNamespace(
        error_code=code, error_message=None, resource_name="t", configs=configs or []
    )
    return SimpleNamespace(results=[result])


def _knows_all_but(unheard: str) -> Callable[[Settings, str], dict[str, str]]:
    def topic_config(_: Settings, name: str) -> dict[str, str]:
        if name == unheard:
            raise SchemaError(f"Kafka knows no topic {name}.")
        return {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.ms": "1",
        }

    return topic_config
