"""The register in Kafka: every rule of a register, on a real broker, in one process or several."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from abs_core.contracts import Conflict, Stored
from abs_core.errors import UnavailableError
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import Session
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import partition_of
from abs_testing.case import within
from abs_testing.check_register import NewStore
from abs_testing.check_register import no_change_is_lost_among_many_writers as no_change_lost
from abs_testing.check_register import of_many_creations_one_wins as one_creation_wins
from tests.kit.kafka import delete_topics
from tests.sinks.contract import test_the_register_keeps_the_rule  # noqa: F401
from tests.sinks.kafka.registers import PatientRegister, change, create, options_of

pytestmark = pytest.mark.services


@pytest.fixture
def new_store(register_options: KafkaOptions) -> NewStore:
    return lambda: KafkaRegister(register_options)


@pytest.mark.parametrize("check", [one_creation_wins, no_change_lost], ids=lambda c: c.__name__)
def test_processes_that_fence_each_other_keep_the_rule(
    check: Callable[[Callable[[], KafkaRegister]], None], register_options: KafkaOptions
) -> None:
    """Three sets of clients, as three processes have them."""
    sessions = [Session(register_options) for _ in range(3)]
    turn = iter(range(10_000))

    def new_store() -> PatientRegister:
        return PatientRegister(register_options, sessions[next(turn) % 3])

    try:
        check(new_store)
    finally:
        for session in sessions:
            session.close()


def test_a_cold_load_reads_as_much_after_many_changes_as_after_few(
    register_options: KafkaOptions, job: str
) -> None:
    read = {}
    for changes in (10, 300):
        change(KafkaRegister(register_options), job, changes)
        session = Session(register_options)
        tail = session.tail(partition_of(job))
        assert tail.load(job, 1.0) is not None
        read[changes] = tail._at - tail._start
        session.close()
    assert read[300] <= 64, f"{read} offsets were read"


@pytest.mark.parametrize("changes", [1, 2, 5])
def test_a_register_that_is_deleted_and_made_anew_is_not_read_as_the_old_one(
    kafka: KafkaService, job: str, changes: int
) -> None:
    """The old topic's cell was changed twice: the new topic is shorter, as long, or longer."""
    kafka.start()
    options = options_of(kafka)
    reader, writer = Session(options), Session(options)
    try:
        here, there = PatientRegister(options, reader), PatientRegister(options, writer)
        change(there, job, 2)
        assert _generation(here, job) == 1
        delete_topics(options.kafka, [options.registertopic])
        assert within(30, lambda: there.load(job) is None)
        if changes == 1:
            assert here.load(job) is None
        change(there, job, changes, first=10)
        assert _generation(here, job) == 10 + changes - 1
    finally:
        reader.close()
        writer.close()


def _generation(register: KafkaRegister, job: str) -> int | None:
    stored = register.load(job)
    return None if stored is None else stored.state.generation


@pytest.mark.campaign
def test_the_time_of_a_load_does_not_grow_with_epochs(
    register_options: KafkaOptions, job: str
) -> None:
    taken = {}
    for changes in (10, 2_000):
        change(KafkaRegister(register_options), job, changes)
        cold = [_seconds(lambda: _cold(register_options, job)) for _ in range(15)]
        warm = [_seconds(lambda: KafkaRegister(register_options).load(job)) for _ in range(15)]
        taken[changes] = 1000 * statistics.median(cold), 1000 * statistics.median(warm)
        print(f"after {changes} changes: load cold {taken[changes][0]:.1f} ms, warm "
              f"{taken[changes][1]:.2f} ms")  # fmt: skip
    assert taken[2_000][0] < 2 * taken[10][0] + 10


def test_an_idle_job_is_found_behind_many_changes_of_another(
    register_options: KafkaOptions, job: str
) -> None:
    stored = create(register_options, f"{job}@1")
    change(KafkaRegister(register_options), f"{job}@2", 100)
    session = Session(register_options)
    assert KafkaRegister(register_options, session).load(f"{job}@1") == stored
    session.close()


def test_a_topic_that_is_not_there_holds_no_job(kafka: KafkaService) -> None:
    register = KafkaRegister(options_of(kafka))
    assert register.load("job") is None
    assert register.jobs() == []


def test_a_retired_job_is_forgotten_and_its_versions_never_come_again(
    register_options: KafkaOptions, job: str
) -> None:
    register = KafkaRegister(register_options)
    stored = create(register_options, job)
    assert register.retire(job)
    assert register.load(job) is None
    assert not register.retire(job)
    create(register_options, job)
    assert isinstance(register.compare_and_set(job, stored.version, stored.state), Conflict)
    assert job in [s.state.job for s in register.jobs()]
    assert register.others_on(stored.state.target, "nobody").count(job) == 1


@pytest.mark.campaign
def test_a_register_outlives_a_killed_broker(
    register_options: KafkaOptions, job: str, kafka: KafkaService
) -> None:
    stored = create(register_options, job)
    kafka.kill()
    kafka.start()
    register = KafkaRegister(register_options)
    deadline = time.monotonic() + 60
    while True:
        try:
            assert register.load(job) == stored
            newer = replace(stored.state, generation=2)
            version = register.compare_and_set(job, stored.version, newer)
            break
        except UnavailableError:
            assert time.monotonic() < deadline
    assert register.load(job) == Stored(newer, str(version))


def _cold(options: KafkaOptions, job: str) -> None:
    session = Session(options)
    assert KafkaRegister(options, session).load(job) is not None
    session.close()


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
