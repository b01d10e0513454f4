"""People are told in the log of a wait: when it begins, at intervals, and when it ends."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from abs_core import waiting
from abs_core.errors import AbsError, UnavailableError
from abs_core.patience import Patience
from abs_core.testing.case import raises, within

PATIENCE = Patience(seconds=60.0, first_pause=0.05, job="j", system="Kafka at h:1")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(waiting, "FAILED_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(logging.getLogger(waiting.LOGGER), "propagate", True)
    caplog.set_level(logging.WARNING, waiting.LOGGER)
    return caplog.messages


def test_a_wait_is_told_when_it_begins_and_goes_on_and_ends(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def call() -> str:
        if len(caplog.messages) < 2:
            raise UnavailableError("The connection broke.")
        return "here"

    assert PATIENCE.retry(call) == "here"
    first, second, *_, last = caplog.messages
    assert first.startswith("job j: waiting for Kafka at h:1 for ")
    assert "60 s at most: The connection broke." in first
    assert second.startswith("job j: still waiting")
    assert last.startswith("job j: Kafka at h:1 answers again, after ")


def test_a_request_that_hangs_is_told_of_too(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with waiting.waiting("j", "S3 at h", 60.0, silent_seconds=0.01):
        assert within(60.0, lambda: bool(caplog.messages))
    assert "waiting for S3 at h" in caplog.messages[0]


def test_a_wait_in_vain_is_told_by_the_log_and_by_the_error(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()

    def call() -> None:
        assert time.monotonic() - began < 300.0
        raise UnavailableError("Nobody answers.", remedy="start it.")

    patience = Patience(seconds=2.0, job="j", system="PostgreSQL at u@h/d")
    error = raises(UnavailableError, lambda: patience.retry(call))
    assert error.what.startswith("Nobody answers. Waited for PostgreSQL at u@h/d for ")
    assert "option patience" in error.what
    assert (error.job, error.remedy) == ("j", "start it.")
    outer = raises(UnavailableError, lambda: _raise(error))
    assert outer.what.count("Waited") == 1
    assert any("was waited for in vain" in message for message in caplog.messages)


def _raise(error: UnavailableError) -> None:
    def call() -> None:
        raise error

    Patience(seconds=0.0, system="another").retry(call)


def test_what_answers_at_once_is_not_told_of(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert PATIENCE.retry(lambda: 1) == 1
    assert caplog.messages == []


def test_what_is_given_up_meanwhile_is_not_tried_again() -> None:
    given_up, calls = threading.Event(), 0

    def call() -> None:
        nonlocal calls
        calls += 1
        given_up.set()
        raise UnavailableError("Nobody answers.")

    error = raises(AbsError, lambda: PATIENCE.retry(call, given_up))
    assert (calls, error.job) == (1, "j")
