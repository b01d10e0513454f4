"""What librdkafka answers while leaders and controllers are away is no offset, and is asked again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from abs_clients.kafka import auth_check, timeouts
from abs_clients.kafka.admin import Admin
from abs_clients.kafka.settings import Settings
from abs_core.errors import RefusedError, UnavailableError
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_sources.kafka import lookup as lookups
from abs_sources.kafka.lookup import Lookup

PLACE = ("t", 0)
SETTINGS = Settings.of({"bootstrap.servers": "127.0.0.1:1"})


@dataclass
class Client:
    """Stands for librdkafka's: gives these answers to a question for offsets, one after the other."""

    answers: list[int | KafkaException | Future[Any]]
    seconds: list[float] = field(default_factory=list)
    events: list[KafkaError] = field(default_factory=list)
    told: Callable[[KafkaError], object] = print

    def list_offsets(self, asked: dict[Any, Any], request_timeout: float, **_: Any) -> Any:
        self.seconds.append(request_timeout)
        answer = self.answers.pop(0)
        if isinstance(answer, Future):
            return dict.fromkeys(asked, answer)
        future: Future[Any] = Future()
        if isinstance(answer, int):
            future.set_result(SimpleNamespace(offset=answer))
        else:
            future.set_exception(answer)
        return dict.fromkeys(asked, future)

    def poll(self, seconds: float) -> int:
        """Tell the events, as librdkafka does: only to who asks for them."""
        while self.events:
            self.told(self.events.pop(0))
        return 0


def _cluster(
    monkeypatch: pytest.MonkeyPatch, *clients: Client, patience: Patience = DEFAULT_PATIENCE
) -> Lookup:
    """With these clients, each when the one before it is given up."""
    waiting = list(clients)

    def opened(settings: dict[str, Any], **_: Any) -> Client:
        client = waiting.pop(0)
        client.told = settings["error_cb"]
        return client

    monkeypatch.setattr(auth_check, "AdminClient", opened)
    return Lookup(Admin(SETTINGS), patience)


def test_no_offset_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _cluster(monkeypatch, Client([OFFSET_INVALID]), Client([7]))
    assert asked.end([PLACE]) == {PLACE: 7}


def test_an_end_before_what_was_read_is_asked_for_again_by_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that was stopped tells it, until it hears that another leads the partition."""
    asked = _cluster(monkeypatch, Client([5]), Client([5]), Client([7]))
    assert asked.end([PLACE], {PLACE: 6}) == {PLACE: 7}


def test_an_end_before_what_was_read_is_believed_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.01,))
    asked = _cluster(monkeypatch, Client([5]), Client([5]))
    assert asked.end([PLACE], {PLACE: 6}) == {PLACE: 5}


def test_a_client_that_gets_no_answer_is_not_asked_again_and_the_next_may_take_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    clients = Client([late]), Client([late]), Client([7, 8])
    asked = _cluster(monkeypatch, *clients)
    assert asked.end([PLACE]) == {PLACE: 7}
    first, second, third = (client.seconds for client in clients)
    assert [len(first), len(second), len(third)] == [1, 1, 1]
    assert first[0] < second[0] < third[0]
    assert asked.end([PLACE]) == {PLACE: 8}
    assert third[1] == first[0], "each question begins with little patience"


def test_a_leader_that_has_not_heard_of_a_new_topic_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unheard = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    asked = _cluster(monkeypatch, Client([unheard]), Client([7]))
    assert asked.end([PLACE]) == {PLACE: 7}


def test_what_fails_at_once_many_times_is_not_given_more_time_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka refuses more than an hour, with an error that is none of ours."""
    clients = [Client([OFFSET_INVALID]) for _ in range(20)]
    at_once = Patience(180.0, first_pause=0.0)
    asked = _cluster(monkeypatch, *clients, Client([7]), patience=at_once)
    assert asked.end([PLACE]) == {PLACE: 7}
    assert max(client.seconds[0] for client in clients) == lookups.MAX_SECONDS


def test_where_nobody_answers_that_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _cluster(monkeypatch, Client([OFFSET_INVALID]), Client([]), patience=Patience(0.0))
    with pytest.raises(UnavailableError, match="t/0 did not return its offsets"):
        asked.end([PLACE])


def test_a_refusal_is_told_and_one_that_has_passed_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = KafkaError(KafkaError._AUTHENTICATION)
    late = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    asked = _cluster(monkeypatch, Client([late], events=[refused]), Client([]))
    with pytest.raises(RefusedError):
        asked.end([PLACE])
    asked = _cluster(monkeypatch, Client([7, late], events=[refused]), Client([8]))
    assert asked.end([PLACE]) == {PLACE: 7}, "it is let in by now"
    assert asked.end([PLACE]) == {PLACE: 8}, "a broker that is away for a moment refuses nobody"


class Later(Future[Any]):
    """Is there once somebody waits for it; something else has happened by then."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def exception(self, timeout: float | None = None) -> None:
        self._meanwhile()

    def result(self, timeout: float | None = None) -> Any:
        return SimpleNamespace(offset=7)


def test_a_client_that_another_thread_gives_up_is_kept_until_its_answer_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka closes a client without references, and then it answers nobody."""
    late = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    was_there: list[bool] = []

    def given_up() -> None:
        assert asked.end([PLACE]) == {PLACE: 8}, "by the next client"
        was_there.append(client() is not None)

    first = Client([Later(given_up), late])
    client = weakref.ref(first)
    asked = _cluster(monkeypatch, first, Client([8]))
    del first
    assert asked.end([PLACE]) == {PLACE: 7}
    assert was_there == [True]


@pytest.mark.timeout(30)
def test_a_request_that_neither_comes_back_nor_fails_is_made_again_by_a_new_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "REQUEST_SECONDS", 0.01)
    monkeypatch.setattr(timeouts, "LATE_SECONDS", 0.0)
    asked = _cluster(monkeypatch, Client([Future()]), Client([7]))
    assert asked.end([PLACE]) == {PLACE: 7}
