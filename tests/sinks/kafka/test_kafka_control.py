"""The process's connection: who waits for whom, and what comes after a connection that has ended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from abs_core.errors import UnavailableError
from abs_core.testing.case import within
from abs_services import KafkaService
from abs_sinks.kafka import client
from abs_sinks.kafka.control import admin, forget
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.settings import Settings
from abs_sinks.kafka.topics import topic_facts

pytestmark = pytest.mark.services


@pytest.fixture
def settings(kafka: KafkaService) -> Iterator[Settings]:
    kafka.start()
    settings = _settings(kafka.bootstrap)
    yield settings
    forget(settings)


def _settings(bootstrap: str) -> Settings:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": "t", "kafka.client.id": "control"}
    return KafkaOptions.parse(given).kafka


def test_nobody_waits_for_another_clusters_brokers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        waits = threading.Thread(target=_is_not_answered, args=(silent.getsockname()[1],))
        waits.start()
        silent.accept()[0].close()
        assert topic_facts(settings, ["none"]) == {}
        assert waits.is_alive(), "the other one is still being waited for"
        waits.join()


def _is_not_answered(port: int) -> None:
    with pytest.raises(UnavailableError):
        admin(_settings(f"127.0.0.1:{port}"))


@pytest.mark.parametrize("error", [OSError, ValueError])
def test_a_connection_whose_thread_has_died_makes_way_for_another(
    settings: Settings, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(timeout: float | None) -> Any:
        raise error("what no connection outlives")

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    loop: Any = admin(settings)._net
    monkeypatch.setattr(loop._selector, "select", fails, raising=False)
    loop.wakeup()
    assert within(20, lambda: not loop._io_thread.is_alive())
    monkeypatch.undo()
    with pytest.raises((UnavailableError, error)):
        topic_facts(settings, ["none"])
    assert topic_facts(settings, ["none"]) == {}
