"""What is closed has no client open any more, without help by the garbage collector.

A client of librdkafka that is left goes on: it looks for its brokers, and asks for tokens.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator, Set
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException

from abs_clients.kafka import admin, timeouts
from abs_clients.kafka import login as logins
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.configs import producer_settings
from abs_clients.kafka.login import login_of
from abs_clients.kafka.settings import Settings
from abs_core.errors import RowError, UnavailableError
from abs_services import KafkaService
from abs_sinks.kafka import librdkafka
from abs_sinks.kafka.librdkafka import LibrdkafkaProducer
from abs_testing.case import raises, within
from abs_testing.engine import Run
from tests.kit.kafka import KEYED, KeyedSink
from tests.kit.kafka_modes import open_variant
from tests.kit.threads import end_kafka_clients, librdkafka_clients
from tests.kit.token_server import TokenServer
from tests.planted import planted

SECONDS = 60.0
"""For a client to end in, on a busy machine; where a bug is planted, ``SOON``."""
SOON = 1.0
NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    """Nothing is open before; the garbage collector stands still."""
    end_kafka_clients()
    gc.disable()
    yield
    gc.enable()


def _fails_and_keeps_its_error(settings: Settings) -> None:
    """As tests do: the error refers to this frame by its traceback, and this frame to the error."""
    producer = confluent_kafka.Producer(producer_settings(settings, None, lambda *_: None))
    with pytest.raises(KafkaException) as caught:
        producer.begin_transaction()
    assert caught.value.__traceback__ is not None


def test_a_client_that_a_test_keeps_in_a_cycle_ends_with_its_file() -> None:
    """It would go on to ask for tokens when server and broker have ended, in every later file."""
    with TokenServer() as server:
        _fails_and_keeps_its_error(Settings.of(server.settings("127.0.0.1:1")))
    assert not within(SOON, none_is_open), "nobody collects it here"
    end_kafka_clients()
    assert within(SECONDS, none_is_open), librdkafka_clients()


def test_a_thread_that_goes_on_is_told_to_one_file_only() -> None:
    end = threading.Event()
    left = threading.Thread(target=end.wait, name="abs-kafka-left")
    left.start()
    try:
        with pytest.raises(AssertionError, match="abs-kafka-left"):
            end_kafka_clients(0.1)
        end_kafka_clients(0.1)
    finally:
        end.set()
        left.join()


def none_is_open() -> bool:
    close_clusters()
    return not librdkafka_clients()


def keeps_in_a_cycle(config: dict[str, object]) -> confluent_kafka.Producer:
    """As if the producer's callback referred to who holds the producer."""
    holds = list[confluent_kafka.Producer]()
    holds.append(confluent_kafka.Producer({**config, "on_delivery": lambda *_: holds}))
    return holds[0]


@pytest.mark.services
@pytest.mark.parametrize("name", ["2pc-librdkafka", "2pc", "wal", "idempotent-librdkafka"])
def test_a_sink_that_is_closed_has_closed_its_clients(kafka: KafkaService, name: str) -> None:
    kafka.start()
    _used(kafka, name)
    assert within(SECONDS, none_is_open), librdkafka_clients()


def _used(kafka: KafkaService, name: str) -> None:
    """Two epochs, and between them a task that is given up."""
    with open_variant(kafka.bootstrap, name) as harness:
        with closing(KeyedSink(harness.options, KEYED)) as sink:
            run = Run(sink, "job")
            run.epoch(0, [(1, "first")])
            attempt = run.attempt(1).write((2, "given up"))
            raises(RowError, lambda: attempt.write((3, "x" * 2_000_000)))
            attempt.writer.abort()
            run.epoch(1, [(2, "second")])
        assert sorted(harness.read()) == [(1, "first"), (2, "second")]


def test_a_producer_is_closed_when_nobody_uses_it_though_its_failure_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "INIT_SECONDS", 0.1)
    settings = Settings.of(NOBODY)
    error = raises(UnavailableError, lambda: LibrdkafkaProducer(settings, "id", None, 1.0))
    assert within(SECONDS, none_is_open), f"{librdkafka_clients()} after {error}"


def test_a_producer_in_a_cycle_of_references_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: only the garbage collector closes it, which comes when it likes."""
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", SOON)
    with planted((librdkafka, "Producer", keeps_in_a_cycle)):
        test_a_producer_is_closed_when_nobody_uses_it_though_its_failure_is_kept(monkeypatch)


def raises_what_the_answer_keeps(
    answer: Future[Any], seconds: float, passing: Set[int] = frozenset()
) -> Any:
    """As if the error of an answer were raised as it is: its traceback refers to answer and client."""
    try:
        return answer.result(seconds)
    except KafkaException as error:
        if error.args[0].code() not in passing:
            raise
    return None


@pytest.mark.services
def test_a_client_that_an_answer_keeps_is_found(
    kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the register's topic is not there yet, which is an error of the answer."""
    kafka.start()
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", SOON)
    with planted((admin, "_taken", raises_what_the_answer_keeps)):
        test_a_sink_that_is_closed_has_closed_its_clients(kafka, "wal")


class Held:
    """What is in use where a token is asked for in vain."""


def failed_without_a_token(settings: Settings) -> weakref.ref[Held]:
    """A reference to what was in use; the failure is not kept here."""
    held = Held()
    login = login_of(settings)
    assert login is not None
    try:
        login.current()
    except UnavailableError:
        return weakref.ref(held)
    raise AssertionError("the token server is away")


def test_what_a_login_keeps_of_an_outage_refers_to_nobody_who_failed_by_it() -> None:
    away = TokenServer()  # never started
    settings = Settings.of(away.settings("127.0.0.1:1") | {"client.id": away.url})
    held = failed_without_a_token(settings)
    login = login_of(settings)
    assert login is not None
    assert login.failure is not None, "why there is no token is kept"
    assert held() is None


def test_a_kept_failure_with_its_traceback_is_found() -> None:
    """Planted: sinks that failed in an outage would be kept with it, and their clients."""
    with planted((logins, "copy", lambda error: error)):
        test_what_a_login_keeps_of_an_outage_refers_to_nobody_who_failed_by_it()
