"""People are told in the log of a wait: when it begins, at intervals, and when it ends."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from contextlib import suppress
from copy import copy
from functools import partial

import pytest

from abs_core.aborting import attempt_all
from abs_core.errors import AbsError, FencedError, RefusedError, UnavailableError
from abs_core.patience import Patience, several, waiting
from abs_testing.case import raises, within
from tests.planted import planted

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
    assert any("did not answer in time" in message for message in caplog.messages)


def test_of_several_systems_the_one_that_failed_is_named_by_the_log_and_by_the_error(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    systems = ("PostgreSQL at u@h/d", "Kafka at h:1", "S3 at http://h, s3://b/p")
    longest = Patience(seconds=2.0, system=systems[0], job="j")
    together = several([longest, *(Patience(seconds=1.0, system=one) for one in systems[1:])])
    assert (together.seconds, together.job) == (2.0, "j")
    error = raises(
        UnavailableError, lambda: together.retry(lambda: _raise_of("S3", "Nobody answers."))
    )
    assert "Waited for S3 at http://h, s3://b/p for " in error.what
    assert caplog.messages[0].startswith("job j: waiting for S3 at http://h, s3://b/p for ")
    assert not [line for line in caplog.messages if "PostgreSQL" in line or "Kafka" in line]


def test_where_no_error_tells_which_of_several_systems_is_away_all_are_named(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    together = several([Patience(1.0, system="Kafka at h:1"), Patience(2.0, system="S3 at h")])
    raises(UnavailableError, lambda: together.retry(lambda: _raise_of("", "Nobody answers.")))
    assert "waiting for Kafka at h:1 or S3 at h for " in caplog.messages[0]


def test_what_fails_in_two_systems_at_once_is_told_of_all(told: list[str]) -> None:
    together = several([Patience(1.0, system="Kafka at h:1"), Patience(1.0, system="S3 at h")])
    parts = [partial(_raise_of, system, "Away.") for system in ("Kafka", "S3")]
    error = raises(UnavailableError, lambda: together.retry(lambda: attempt_all(parts)))
    assert "Waited for Kafka at h:1 or S3 at h for " in error.what


def _raise_of(system: str, what: str) -> None:
    raise UnavailableError(what).of(system)


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


class Held:
    """What is in use where a call fails."""


def failed(error: AbsError) -> weakref.ref[Held]:
    """A reference to what was in use; the error is not kept here."""
    held = Held()

    def call() -> None:
        assert held is not None
        raise copy(error)

    with suppress(AbsError):
        Patience(seconds=0.0).retry(call)
    return weakref.ref(held)


ERRORS = [UnavailableError("Away."), RefusedError("No."), FencedError("Another one.")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_who_has_failed_is_not_kept_by_its_error(error: AbsError) -> None:
    """Only the garbage collector would close its clients."""
    gc.disable()
    try:
        assert failed(error)() is None
    finally:
        gc.enable()


def test_a_wait_that_keeps_its_error_is_found() -> None:
    """Planted: the error refers to itself, as it does where a call's frame keeps it."""

    def gave_up(error: AbsError, *_: object) -> None:
        error.args = (error,)

    with planted((UnavailableError, "gave_up", gave_up)):
        test_who_has_failed_is_not_kept_by_its_error(ERRORS[0])
