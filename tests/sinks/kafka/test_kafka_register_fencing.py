"""A register in Kafka whose coordinator died, is late, or lost its reply: nothing changes unseen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.timeouts import CELL_TIMEOUT_MS
from abs_core.codec import state_to_text
from abs_core.contracts import Conflict, Stored
from abs_core.errors import FencedError, UnavailableError
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import (
    KEPT_PRODUCERS,
    FencedProducer,
    Session,
    register_id,
)
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.tail import BlockedError, Extent, Tail, log_offsets
from abs_sinks.kafka.register.topic import PARTITIONS, partition_of, records_of, version_after
from abs_testing.case import within
from abs_testing.check_register import an_old_answer_lets_no_change_through
from tests.fault_proxy.kafka import Api, LossyBroker
from tests.sinks.kafka.registers import create

pytestmark = pytest.mark.services

MINUTES_MS = 600_000
"""A transaction's timeout, which shows who waited for it on a busy machine, too."""
MINUTE = 60.0


def test_a_coordinator_that_died_inside_its_change_holds_nobody_up(
    register_options: KafkaOptions, job: str
) -> None:
    stored = create(register_options, job)
    dead = _half_written(register_options, stored, timeout_ms=MINUTES_MS)
    began = time.monotonic()
    assert KafkaRegister(register_options).load(job) == stored
    assert time.monotonic() - began < MINUTE
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
    dead = _half_written(register_options, create(register_options, other), timeout_ms=MINUTES_MS)
    # One that holds up nobody, as it is in another partition.
    alive = next(f"{job}-{n}" for n in range(99) if partition_of(f"{job}-{n}") != partition_of(job))
    beside = _half_written(register_options, create(register_options, alive), timeout_ms=MINUTES_MS)
    began = time.monotonic()
    stored = create(register_options, mine)
    assert KafkaRegister(register_options).load(mine) == stored
    assert time.monotonic() - began < 2 * MINUTE
    with pytest.raises(FencedError):
        dead.commit()
    beside.commit()


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


@pytest.mark.parametrize("times", [1, 2, 3, 4, 10**4])
def test_an_old_answer_lets_no_change_through(register_options: KafkaOptions, times: int) -> None:
    """A stopped broker that goes on tells the ends that it knows, until it hears of its successor."""
    sessions, old = list[Session](), list[Extent | None]()

    class Stopped(Session):
        def tail(self, partition: int) -> Tail:
            if partition not in self._tails:
                self._tails[partition] = Tail(
                    self._settings, self._name, partition, extent_of=answer
                )
            return self._tails[partition]

    def answer(settings: Settings, topic: str, partition: int) -> Extent | None:
        return old.pop() if old else log_offsets(settings, topic, partition)

    def new_store() -> KafkaRegister:
        sessions.append(Stopped(register_options))
        return KafkaRegister(register_options, sessions[-1])

    @contextmanager
    def old_answers(job: str) -> Iterator[None]:
        topic = register_options.registertopic
        old[:] = [log_offsets(register_options.kafka, topic, partition_of(job))] * times
        yield
        old.clear()

    an_old_answer_lets_no_change_through(new_store, old_answers)
    for session in sessions:
        session.close()


def test_a_session_keeps_few_producers_and_none_that_cannot_be_used(
    register_options: KafkaOptions, job: str
) -> None:
    session = Session(register_options)
    session.topic()
    jobs = [f"{job}-{number}" for number in range(KEPT_PRODUCERS + 1)]
    made = [session.open_producer(register_options, name, CELL_TIMEOUT_MS) for name in jobs]
    assert [session.producer(name) for name in jobs] == [None, *made[1:]]
    made[1].usable = False
    assert session.producer(jobs[1]) is None
    again = session.open_producer(register_options, jobs[1], CELL_TIMEOUT_MS)
    assert session.producer(jobs[1]) is again
    assert session.producer(jobs[2]) is made[2]
    session.close()


def test_a_change_whose_transaction_another_has_ended_is_written_again(
    register_options: KafkaOptions, job: str
) -> None:
    """It is ended when its records are sent, and before the cell that was read is confirmed."""
    stored = create(register_options, job)
    name = register_id(register_options.registertopic, job)
    newer = replace(stored.state, generation=2)
    with LossyBroker(dict(register_options.kafka.pairs)["bootstrap.servers"]) as broker:
        pairs = {**dict(register_options.kafka.pairs), "bootstrap.servers": broker.bootstrap}
        settings = replace(register_options.kafka, pairs=tuple(sorted(pairs.items())))
        late = KafkaRegister(replace(register_options, kafka=settings))
        ends = lambda: init_producer_id(register_options.kafka, name)  # noqa: E731
        broker.before(Api.DESCRIBE_TRANSACTIONS, ends)
        version = late.compare_and_set(job, stored.version, newer)
        assert not broker.waits
        close_clusters(settings)
    assert KafkaRegister(register_options).load(job) == Stored(newer, str(version))


def test_a_broker_that_has_nothing_of_a_transaction_confirms_no_change_by_it(
    register_options: KafkaOptions, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that led the partition, and does not know what the leader has got since."""
    monkeypatch.setattr(timeouts, "LEADER_SECONDS", 0.2)
    stored = create(register_options, job)
    mine = partition_of(job)
    ends = list[Extent | None]()

    def is_ended() -> bool:
        """A broker answers before the transaction's marker is written, which takes an offset."""
        ends.append(log_offsets(register_options.kafka, register_options.registertopic, mine))
        return (end := ends[-1]) is not None and end.stable == end.end

    assert within(30, is_ended)
    producer = _half_written(register_options, stored)
    assert ends[-1] is not None
    assert producer.begins_at(mine) == ends[-1].end
    with pytest.raises(UnavailableError, match="leads it no longer"):
        producer.begins_at((mine + 1) % PARTITIONS)
    producer.commit()


def _half_written(
    options: KafkaOptions, stored: Stored, timeout_ms: int = CELL_TIMEOUT_MS
) -> FencedProducer:
    """A coordinator that has written its cell, and stops before its commit."""
    producer = FencedProducer(options, stored.state.job, timeout_ms)
    newer = state_to_text(replace(stored.state, generation=9))
    records = records_of(stored.state.job, version_after(stored.version), newer, 10**5)
    producer.prepare(None, records, partition_of(stored.state.job))
    return producer
