"""A register in Kafka whose coordinator died, is late, or lost its reply: nothing changes unseen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import repeat

import pytest

from abs_clients.kafka.timeouts import CELL_TIMEOUT_MS
from abs_core.codec import state_to_text
from abs_core.contracts import Conflict, Stored
from abs_core.errors import FencedError, UnavailableError
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import tail as register_tail
from abs_sinks.kafka.register.session import FencedProducer, Session
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.tail import BlockedError, Extent, log_offsets
from abs_sinks.kafka.register.topic import partition_of, records_of, version_after
from abs_testing.check_register import an_old_answer_lets_no_change_through
from tests.sinks.kafka.registers import create

pytestmark = pytest.mark.services


def test_a_coordinator_that_died_inside_its_change_holds_nobody_up(
    register_options: KafkaOptions, job: str
) -> None:
    stored = create(register_options, job)
    dead = _half_written(register_options, stored)
    began = time.monotonic()
    assert KafkaRegister(register_options).load(job) == stored
    assert time.monotonic() - began < 8
    # Its last request comes late: nothing changes any more.
    with pytest.raises(FencedError):
        dead.commit()
    assert KafkaRegister(register_options).load(job) == stored


def test_a_leader_that_answers_is_not_looked_for_anew_where_a_transaction_is_in_the_way(
    register_options: KafkaOptions, job: str
) -> None:
    dead = _half_written(register_options, create(register_options, job))
    session = Session(register_options)
    tail = session.tail(partition_of(job))
    before = tail._consumer
    with pytest.raises(BlockedError):
        tail.load(job, 1.0)
    assert tail._consumer is before
    dead.commit()
    session.close()


def test_another_jobs_dead_coordinator_holds_nobody_up(
    register_options: KafkaOptions, job: str
) -> None:
    mine, other = f"{job}@1", f"{job}@2"
    dead = _half_written(register_options, create(register_options, other), timeout_ms=600_000)
    began = time.monotonic()
    stored = create(register_options, mine)
    assert KafkaRegister(register_options).load(mine) == stored
    assert time.monotonic() - began < 20
    with pytest.raises(FencedError):
        dead.commit()


def test_a_late_change_of_a_fenced_coordinator_changes_nothing(
    register_options: KafkaOptions, job: str
) -> None:
    stored = create(register_options, job)
    late = _half_written(register_options, stored)
    newer = Session(register_options)
    version = KafkaRegister(register_options, newer).compare_and_set(
        job, stored.version, replace(stored.state, generation=2)
    )
    assert not isinstance(version, Conflict)
    with pytest.raises(FencedError):
        late.commit()
    found = KafkaRegister(register_options).load(job)
    assert found is not None
    assert (found.version, found.state.generation) == (version, 2)
    newer.close()


@pytest.mark.parametrize("times", [1, 2, 3, 4, 10**6])
def test_an_old_answer_lets_no_change_through(
    register_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A stopped broker that goes on tells the ends that it knows, until it hears of its successor."""
    sessions, ask = list[Session](), log_offsets

    def new_store() -> KafkaRegister:
        sessions.append(Session(register_options))
        return KafkaRegister(register_options, sessions[-1])

    def old_answers(job: str) -> AbstractContextManager[object]:
        known = ask(register_options.kafka, register_options.registertopic, partition_of(job))
        return answering(repeat(known, times))

    @contextmanager
    def answering(known: Iterator[Extent | None]) -> Iterator[None]:
        with monkeypatch.context() as stopped:
            stopped.setattr(register_tail, "log_offsets", lambda *of: next(known, None) or ask(*of))
            yield

    an_old_answer_lets_no_change_through(new_store, old_answers)
    for session in sessions:
        session.close()


@pytest.mark.parametrize("lost", ["the reply", "the request"])
def test_a_lost_commit_is_looked_up(
    register_options: KafkaOptions, job: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    stored = create(register_options, job)
    commit, calls = FencedProducer.commit, []

    def losing(producer: FencedProducer) -> None:
        calls.append(lost)
        if len(calls) > 1 or lost == "the reply":
            commit(producer)
        if len(calls) == 1:
            producer.usable = False
            raise UnavailableError("lost on purpose")

    monkeypatch.setattr(FencedProducer, "commit", losing)
    newer = replace(stored.state, generation=2)
    version = KafkaRegister(register_options).compare_and_set(job, stored.version, newer)
    assert len(calls) == (1 if lost == "the reply" else 2)
    assert KafkaRegister(register_options).load(job) == Stored(newer, str(version))


@pytest.mark.parametrize("lost", ["the reply", "the request"])
def test_what_became_of_a_lost_commit_is_not_guessed_where_another_has_written_since(
    register_options: KafkaOptions, job: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Theirs may stand on ours: "conflict" would say that ours never took effect."""
    stored = create(register_options, job)
    commit, other, calls = FencedProducer.commit, Session(register_options), []

    def losing(producer: FencedProducer) -> None:
        calls.append(lost)
        if len(calls) > 1:
            return commit(producer)
        if lost == "the reply":
            commit(producer)
        producer.usable = False
        theirs = KafkaRegister(register_options, other)
        there = theirs.load(job)
        assert there is not None
        after = theirs.compare_and_set(job, there.version, replace(there.state, run="another"))
        assert not isinstance(after, Conflict)
        raise UnavailableError("lost on purpose")

    monkeypatch.setattr(FencedProducer, "commit", losing)
    mine = replace(stored.state, generation=2)
    register = KafkaRegister(register_options)
    if lost == "the reply":
        with pytest.raises(UnavailableError, match="written by others"):
            register.compare_and_set(job, stored.version, mine)
    else:
        assert isinstance(register.compare_and_set(job, stored.version, mine), Conflict)
    found = KafkaRegister(register_options).load(job)
    assert found is not None
    assert (found.state.run, found.state.generation) == ("another", 2 if lost == "the reply" else 1)
    other.close()


def _half_written(
    options: KafkaOptions, stored: Stored, timeout_ms: int = CELL_TIMEOUT_MS
) -> FencedProducer:
    """A coordinator that has written its cell, and stops before its commit."""
    producer = FencedProducer(options, stored.state.job, timeout_ms)
    newer = state_to_text(replace(stored.state, generation=9))
    records = records_of(stored.state.job, version_after(stored.version), newer, 10**5)
    producer.prepare(None, records, partition_of(stored.state.job))
    return producer
