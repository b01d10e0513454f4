"""What tests of the Kafka sink share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from abs_clients.kafka import auth_check, timeouts
from abs_clients.kafka.cluster import close_clusters
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from tests.sinks.kafka.registers import options_of
from tests.sinks.kafka.standins import Broker


@pytest.fixture(scope="module")
def register_options(kafka: KafkaService) -> KafkaOptions:
    """A register's topic that the tests of one module share; each has a job of its own."""
    kafka.start()
    return options_of(kafka)


@pytest.fixture
def job() -> str:
    """The name of a job of this test's own."""
    return f"job{secrets.token_hex(6)}"


@pytest.fixture
def standins(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Broker]]:
    """Who is asked by each new client, one after another; the last one for ever. Without a pause."""
    waiting: list[Broker] = []
    made = lambda *_, **__: waiting.pop(0) if waiting[1:] else waiting[0]  # noqa: E731
    monkeypatch.setattr(auth_check, "AdminClient", made)
    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.0,) * 5)
    close_clusters()
    yield waiting
    close_clusters()
