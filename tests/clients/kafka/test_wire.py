"""The process's connection: who waits for whom, and what comes after a connection that has ended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from selectors import BaseSelector
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError, NodeNotReadyError
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager

from abs_clients.kafka import auth_check, timeouts, wire
from abs_clients.kafka.cluster import close_clusters, cluster
from abs_clients.kafka.private import manager_of
from abs_clients.kafka.routing import brokers_of
from abs_clients.kafka.settings import Settings
from abs_core.errors import RefusedError, UnavailableError
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_testing.case import within
from tests.kit.threads import living

pytestmark = pytest.mark.services


@pytest.fixture
def settings(kafka: KafkaService) -> Iterator[Settings]:
    kafka.start()
    settings = _settings(kafka.bootstrap)
    yield settings
    cluster(settings).connection().close()


def _settings(bootstrap: str) -> Settings:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": "t", "kafka.client.id": "control"}
    return KafkaOptions.parse(given).kafka


def test_nobody_waits_for_another_clusters_brokers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "REQUEST_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        waits = threading.Thread(target=_is_not_answered, args=(silent.getsockname()[1],))
        waits.start()
        silent.accept()[0].close()
        assert len(cluster(settings).run("asking for brokers", brokers_of)) == 1
        assert waits.is_alive(), "the other one is still being waited for"
        waits.join()


def _is_not_answered(port: int) -> None:
    with pytest.raises(UnavailableError):
        cluster(_settings(f"127.0.0.1:{port}")).client()


@pytest.mark.parametrize("error", [OSError, ValueError])
def test_a_connection_whose_thread_has_died_makes_way_for_another(
    settings: Settings, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(timeout: float | None) -> Any:
        raise error("what no connection outlives")

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    loop: Any = cluster(settings).client()._net  # its I/O, on a thread of its own
    selector: BaseSelector = loop._selector
    monkeypatch.setattr(selector, "select", fails, raising=False)
    loop.wakeup()
    assert within(60, lambda: not loop._io_thread.is_alive())
    monkeypatch.undo()
    with pytest.raises((UnavailableError, error)):
        cluster(settings).run("asking for brokers", brokers_of)
    assert len(cluster(settings).run("asking for brokers", brokers_of)) == 1


def test_a_call_that_nobody_answers_has_an_end(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python waits without a limit for a broker that accepts and then says nothing in TLS."""

    async def unanswered(manager: Any) -> None:
        await Future()

    monkeypatch.setattr(timeouts, "CALL_SECONDS", 0.2)
    with pytest.raises(UnavailableError, match="waiting for nobody"):
        cluster(settings).run("waiting for nobody", unanswered)
    monkeypatch.undo()
    assert len(cluster(settings).run("asking for brokers", brokers_of)) == 1


def test_a_client_whose_brokers_have_all_gone_makes_way_for_one_that_asks_the_bootstrap_servers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster(settings).client()
    monkeypatch.setattr(timeouts, "ALONE_SECONDS", 0.2)
    manager: KafkaConnectionManager = manager_of(first)
    monkeypatch.setattr(manager, "least_loaded_node", lambda: None)  # as it says then

    def is_answered() -> bool:
        try:
            return len(cluster(settings).run("asking for brokers", brokers_of)) == 1
        except UnavailableError:
            return False

    assert not is_answered()
    assert cluster(settings).client() is first, "a moment without brokers is no reason"
    assert within(60, is_answered)
    assert cluster(settings).client() is not first


def test_an_answer_in_between_shows_that_a_client_is_not_cut_off(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(manager: Any) -> None:
        raise NodeNotReadyError("one of several")

    first = cluster(settings).client()
    clock = 0.0
    monkeypatch.setattr(wire, "time", SimpleNamespace(monotonic=lambda: clock))
    for _ in range(3):
        with pytest.raises(UnavailableError):
            cluster(settings).run("asking one that is away", away)
        clock += timeouts.ALONE_SECONDS - 1
        assert len(cluster(settings).run("asking for brokers", brokers_of)) == 1
    assert cluster(settings).client() is first


def test_one_broker_that_stands_still_does_not_take_all_the_time_to_connect(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    real = KafkaAdminClient

    def opened(**config: Any) -> Any:
        tries.append(config["bootstrap_timeout_ms"])
        if len(tries) == 1:
            raise KafkaTimeoutError("Unable to bootstrap")
        return real(**config)

    monkeypatch.setattr(wire, "KafkaAdminClient", opened)
    assert len(cluster(settings).run("asking for brokers", brokers_of)) == 1
    assert len(tries) == 2
    assert sum(tries) == timeouts.REQUEST_SECONDS * 1000


def test_who_gives_a_client_up_late_leaves_the_next_one_alone(settings: Settings) -> None:
    first = cluster(settings).client()
    cluster(settings).connection().close(first)
    second = cluster(settings).client()
    cluster(settings).connection().close(first)
    assert second is not first
    assert cluster(settings).client() is second
    assert len(cluster(settings).run("asking for brokers", brokers_of)) == 1


def test_a_client_that_is_made_while_its_cluster_is_closed_ends_with_the_next_close(
    kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.start()
    mine = _settings(kafka.bootstrap).with_(**{"client.id": "made-across-a-close"})
    connecting, closed = threading.Event(), threading.Event()
    real = KafkaAdminClient

    def slow(**config: Any) -> Any:
        made = real(**config)
        connecting.set()
        assert closed.wait(60)
        return made

    monkeypatch.setattr(wire, "KafkaAdminClient", slow)
    with ThreadPoolExecutor(1) as others:
        answer = others.submit(cluster(mine).run, "asking for brokers", brokers_of)
        assert connecting.wait(60)
        close_clusters(mine)
        closed.set()
        assert len(answer.result(60)) == 1, "who has asked is answered"
    assert living("kafka-io-made-across-a-close")
    close_clusters(mine)
    assert within(60, lambda: not living("kafka-io-made-across-a-close"))


def test_why_brokers_refuse_is_heard_though_that_they_are_down_is_told_before(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [KafkaError._ALL_BROKERS_DOWN, KafkaError._SSL]

    class Client:
        def __init__(self, told: Callable[[KafkaError], object]) -> None:
            self._told = told

        def poll(self, seconds: float) -> None:
            if codes:
                self._told(KafkaError(codes.pop(0)))

    monkeypatch.setattr(auth_check, "AdminClient", lambda given: Client(given["error_cb"]))
    with pytest.raises(RefusedError):
        auth_check.check_access(settings)


class SlowToTell:
    """A client that says that the brokers are down, and why only seconds later; and its clock."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self._told: Callable[[KafkaError], object] = lambda _: None
        self._left = [(0.0, KafkaError._ALL_BROKERS_DOWN), (seconds, KafkaError._SSL)]

    def made(self, given: dict[str, Any]) -> SlowToTell:
        self._told = given["error_cb"]
        return self

    def monotonic(self) -> float:
        return self.now

    def poll(self, seconds: float) -> None:
        self.now += seconds
        while self._left and self._left[0][0] <= self.now:
            self._told(KafkaError(self._left.pop(0)[1]))

    def cluster_id(self, seconds: float) -> str:
        self.now += seconds
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_reason_that_a_busy_machine_tells_late_is_heard_by_the_second_look(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for again in (False, True):
        slow = SlowToTell(2 * timeouts.FIRST_REASON_SECONDS)
        monkeypatch.setattr(auth_check, "time", slow)
        monkeypatch.setattr(auth_check, "AdminClient", slow.made)
        if again:
            with pytest.raises(RefusedError):
                auth_check.check_access(settings, again=True)
        else:
            auth_check.check_access(settings)


def test_who_reaches_nobody_looks_once_more_for_longer_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[SlowToTell] = []

    def made(given: dict[str, Any]) -> SlowToTell:
        looks.append(SlowToTell(2 * timeouts.FIRST_REASON_SECONDS).made(given))
        return looks[-1]

    def nobody(**config: Any) -> KafkaAdminClient:
        raise KafkaTimeoutError("Unable to bootstrap")

    clock = SimpleNamespace(monotonic=lambda: looks[-1].now if looks else 0.0)
    monkeypatch.setattr(auth_check, "time", clock)
    monkeypatch.setattr(auth_check, "AdminClient", made)
    monkeypatch.setattr(wire, "KafkaAdminClient", nobody)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.client.id": "guarded"}
    guarded = KafkaOptions.parse({**given, "kafka.security.protocol": "SSL"}).kafka
    with pytest.raises(RefusedError):  # the second look waits until the reason is told
        cluster(guarded).client()
    assert len(looks) == 2
