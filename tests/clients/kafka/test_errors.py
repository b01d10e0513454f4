"""Errors name the reason, not what followed from it, and say whether a retry can help."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.errors import to_abs_error
from abs_core.errors import AbsError, FencedError, RowError, UnavailableError
from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.librdkafka import Failures

PURGED = KafkaError(KafkaError._PURGE_QUEUE)
FENCED = KafkaError(KafkaError._FENCED, "a newer one", fatal=True)


class Failed:
    """A producer that has failed, or is well: what it answers to who would begin a transaction."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def begin_transaction(self) -> None:
        raise KafkaException(self._error)


WELL = Failed(KafkaError(KafkaError._STATE))


class Lost:
    """A message that was not delivered."""

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0


class Met(Lost):
    """One that the binding reports while its own exception, of a fatal error, is set."""

    def key(self) -> bytes:
        raise SystemError("returned a result with an exception set") from KafkaException(FENCED)


def why(failures: Failures, producer: Failed) -> AbsError:
    given: Any = producer
    with pytest.raises(AbsError) as caught:
        failures.raise_any(given)
    return caught.value


def report(failures: Failures, code: KafkaError, message: Lost | None = None) -> None:
    given: Any = message or Lost()
    failures.report(code, given)


def test_what_was_purged_names_why_its_producer_failed() -> None:
    failures = Failures()
    report(failures, PURGED)
    report(failures, PURGED)
    error = why(failures, Failed(FENCED))
    assert isinstance(error, FencedError)
    assert "2 records were not delivered" in str(error)


def test_a_purge_that_comes_first_does_not_hide_the_record_that_was_refused() -> None:
    failures = Failures()
    report(failures, PURGED)
    report(failures, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    assert isinstance(why(failures, WELL), RowError)


def test_a_fatal_error_that_met_a_report_is_named() -> None:
    failures = Failures()
    report(failures, PURGED, Met())
    assert isinstance(why(failures, WELL), FencedError)


@pytest.mark.parametrize("code", [KafkaError._FATAL, KafkaError._STATE])
def test_a_call_that_is_refused_because_the_producer_has_failed_names_why(code: int) -> None:
    producer: Any = Failed(FENCED)
    with pytest.raises(FencedError), Failures().named(producer, "queueing records"):
        raise KafkaException(KafkaError(code))


def test_an_exception_that_the_binding_has_lost_is_asked_for() -> None:
    producer: Any = Failed(FENCED)
    with pytest.raises(FencedError), Failures().named(producer, "waiting"):
        raise SystemError("returned NULL without setting an exception")


@pytest.mark.parametrize("error", [KafkaTimeoutError, TopicAuthorizationFailedError])
@pytest.mark.parametrize("said", ["no answer", ""])
def test_an_errors_kind_is_named_once(error: type[Exception], said: str) -> None:
    text = str(to_abs_error(error(said), "asking"))
    assert text.count(error.__name__) == 1
    assert said in text


def test_brokers_that_cannot_be_reached_leave_no_thread_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "REQUEST_SECONDS", 0.3)
    settings = KafkaOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}).kafka
    before = set(threading.enumerate())
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1") as caught:
        cluster(settings).client()
    assert "check that the brokers are up" in str(caught.value)
    assert set(threading.enumerate()) <= before
