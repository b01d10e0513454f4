"""A broker that has not heard of a topic yet, of which others have: that ends no job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from abs_core.attempts import side_topic
from abs_core.errors import SchemaError, UnavailableError
from abs_sinks.kafka import winners
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.settings import Settings
from abs_sinks.kafka.topics import TopicFacts

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
