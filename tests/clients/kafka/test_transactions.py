"""The protocol of transaction coordinators, as a real broker speaks it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from abs_clients.kafka.producer_ids import describe_producers, init_producer_id
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import (
    Description,
    EndTxn,
    Reply,
    State,
    describe,
    describe_and_list_late,
    describe_open,
    end,
    listed,
)
from abs_core.patience import Patience
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_testing.case import within
from tests.kit.kafka import make_topic

pytestmark = pytest.mark.services

PATIENCE = Patience(seconds=20.0)
"""With a broker that was started just now: its coordinators come with the first that asks."""


@pytest.fixture
def settings(kafka: KafkaService) -> Settings:
    kafka.start()
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": "t"}
    return KafkaOptions.parse(given).kafka


@pytest.fixture
def opened(settings: Settings, topic: str) -> Iterator[tuple[str, Producer, Description]]:
    """A transaction with three records in one partition, flushed and open: its id and producer."""
    make_topic(settings, topic)
    name = f"x-{secrets.token_hex(4)}"
    producer = _open(settings, name, topic)
    now = describe(settings, [name])[name]
    assert now is not None
    yield name, producer, now
    fence_whole(settings, name)


def _open(settings: Settings, name: str, topic: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": settings.bootstrap, "transactional.id": name, "log_level": "0"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, b"v", str(number), 1)
    assert producer.flush(30) == 0
    return producer


def fence_whole(settings: Settings, name: str) -> None:
    PATIENCE.retry(lambda: init_producer_id(settings, name))


def ending(name: str, now: Description, version: int = 4) -> EndTxn:
    return EndTxn(name, now.producer_id, now.epoch, version)


def state_of(settings: Settings, name: str) -> tuple[State, int]:
    now = describe(settings, [name])[name]
    assert now is not None
    return now.state, now.epoch


def test_an_open_transaction_is_described(
    settings: Settings, topic: str, opened: tuple[str, Producer, Description]
) -> None:
    _, _, now = opened
    assert now.state is State.ONGOING
    assert now.partitions == ((topic, 1),)
    assert abs(now.start_ms / 1000 - time.time()) < 60
    assert now.timeout_ms == 60_000


def test_an_unknown_id_is_told_from_an_empty_one(settings: Settings) -> None:
    name = f"x-{secrets.token_hex(4)}"
    assert PATIENCE.retry(lambda: describe(settings, [name])) == {name: None}
    fence_whole(settings, name)
    assert state_of(settings, name)[0] is State.EMPTY


def test_ids_are_listed_by_state_pattern_and_age(
    settings: Settings, opened: tuple[str, Producer, Description]
) -> None:
    name, _, now = opened
    assert listed(settings, (State.ONGOING,))[name] is State.ONGOING
    assert name not in listed(settings, (State.COMPLETE_COMMIT,))
    assert listed(settings, pattern=f"{name}") == {name: State.ONGOING}
    assert name not in listed(settings, pattern="abs1:.*")
    assert listed(settings, producer_ids=[now.producer_id]) == {name: State.ONGOING}
    for longer_than_ms, found in ((3_600_000, set()), (0, {name})):
        late = [([now.producer_id], longer_than_ms)]
        assert describe_and_list_late(settings, [name], late)[1] == found


def test_a_partition_counts_the_records_of_a_transaction(
    settings: Settings, topic: str, opened: tuple[str, Producer, Description]
) -> None:
    _, _, now = opened
    found = describe_producers(settings, [(topic, 1), (topic, 0)], now.producer_id)
    assert found[topic, 0] is None
    there = found[topic, 1]
    assert there is not None
    assert (there.epoch, there.last_sequence, there.start_offset) == (now.epoch, 2, 0)


def test_a_death_between_two_ends_leaves_the_first_ended_and_the_others_open(
    settings: Settings, topic: str
) -> None:
    class DeathError(Exception):
        """Stands for SIGKILL."""

    def die() -> None:
        raise DeathError

    make_topic(settings, topic)
    names = [f"x-{secrets.token_hex(4)}" for _ in range(3)]
    producers = [_open(settings, name, topic) for name in names]
    now = {name: each for name, each in describe(settings, names).items() if each is not None}
    with pytest.raises(DeathError):
        end(settings, [ending(n, now[n]) for n in names], commit=True, between=die)
    first, *others = (state_of(settings, name)[0] for name in names)
    assert first in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
    assert others == [State.ONGOING, State.ONGOING]
    for name in names:
        fence_whole(settings, name)
    del producers


def test_a_plain_end_commits_leaves_the_epoch_and_can_be_repeated(
    settings: Settings, opened: tuple[str, Producer, Description]
) -> None:
    name, _, now = opened
    assert describe_open(settings, name, ()).end_txn == 4
    for _ in ("once", "and again"):
        assert within(60, lambda: _end(settings, name, now) is Reply.DONE)
    assert within(60, lambda: state_of(settings, name) == (State.COMPLETE_COMMIT, now.epoch))


def test_the_newer_end_commits_raises_the_epoch_and_can_be_repeated(
    settings: Settings, opened: tuple[str, Producer, Description]
) -> None:
    name, _, now = opened
    for _ in ("once", "and again"):
        assert within(60, lambda: _end(settings, name, now, 5) is Reply.DONE)
    assert within(60, lambda: state_of(settings, name) == (State.COMPLETE_COMMIT, now.epoch + 1))


def test_an_end_for_another_epoch_or_producer_does_nothing(
    settings: Settings, opened: tuple[str, Producer, Description]
) -> None:
    name, _, now = opened
    wrong = [
        EndTxn(name, now.producer_id, now.epoch + 1),
        EndTxn(name, now.producer_id + 1000, now.epoch),
    ]
    for each in wrong:
        assert end(settings, [each], commit=True)[name] is Reply.REFUSED
    assert state_of(settings, name) == (State.ONGOING, now.epoch)


def test_a_fence_aborts_what_is_open_and_an_end_comes_too_late(
    settings: Settings, opened: tuple[str, Producer, Description]
) -> None:
    name, _, now = opened
    fence_whole(settings, name)
    state, epoch = state_of(settings, name)
    assert state is State.EMPTY
    assert epoch > now.epoch
    assert end(settings, [ending(name, now)], commit=True)[name] is Reply.REFUSED


def _end(settings: Settings, name: str, now: Description, version: int = 4) -> Reply:
    return end(settings, [ending(name, now, version)], commit=True)[name]


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_when_epochs_are_used_up_the_id_gets_another_producer_and_old_ends_do_nothing(
    settings: Settings, opened: tuple[str, Producer, Description]
) -> None:
    name, _, now = opened
    seen = now
    while seen.producer_id == now.producer_id:
        for _ in range(500):
            fence_whole(settings, name)
        found = describe(settings, [name])[name]
        assert found is not None
        seen = found
    assert seen.epoch < now.epoch + 1000
    assert end(settings, [ending(name, now)], commit=True)[name] is Reply.REFUSED
