"""The register in Kafka: every rule of a register, on a real broker, whoever dies or is late."""

from __future__ import annotations

import json
import secrets
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import repeat

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are there
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.log_offsets import Extent, log_offsets
from abs_clients.kafka.timeouts import CELL_TIMEOUT_MS
from abs_core.codec import state_to_text
from abs_core.contracts import Conflict, Stored, Version
from abs_core.errors import CorruptionError, FencedError, PreflightError, UnavailableError
from abs_core.model import JobState
from abs_core.testing.check_register import (
    CHECKS,
    a_state_comes_back_as_it_was,
    an_old_answer_lets_no_change_through,
)
from abs_core.testing.check_register import no_change_is_lost_among_many_writers as no_change_lost
from abs_core.testing.check_register import of_many_creations_one_wins as one_creation_wins
from abs_services import KafkaService
from abs_sinks.kafka import register_tail
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import KafkaRegister
from abs_sinks.kafka.register_session import FencedProducer, Rows, Session
from abs_sinks.kafka.register_tail import BlockedError
from abs_sinks.kafka.register_topic import (
    PARTITIONS,
    Cells,
    partition_of,
    records_of,
    version_after,
)
from tests.kit.kafka import delete_topics

pytestmark = pytest.mark.services

STATE = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")


@pytest.fixture(scope="module")
def shared(kafka: KafkaService) -> Iterator[KafkaOptions]:
    """A register's topic that the tests of this module share; each has a job of its own."""
    kafka.start()
    yield _options(kafka)
    close_clusters()


@pytest.fixture
def job() -> str:
    return f"job{secrets.token_hex(6)}"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_register_keeps_the_rule(
    check: Callable[[Callable[[], KafkaRegister]], None], shared: KafkaOptions
) -> None:
    check(lambda: KafkaRegister(shared))


@pytest.mark.parametrize("check", [one_creation_wins, no_change_lost], ids=lambda c: c.__name__)
def test_processes_that_fence_each_other_keep_the_rule(
    check: Callable[[Callable[[], KafkaRegister]], None], shared: KafkaOptions
) -> None:
    """Three sets of clients, as three processes have them."""
    sessions = [Session(shared) for _ in range(3)]
    turn = iter(range(10_000))

    def new_store() -> PatientRegister:
        return PatientRegister(shared, sessions[next(turn) % 3])

    try:
        check(new_store)
    finally:
        for session in sessions:
            session.close()


class PatientRegister(KafkaRegister):
    """Where it is not known whether a change took effect: looks, as the core's ``Cell`` does."""

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, rows: Rows | None = None
    ) -> Version | Conflict:
        try:
            return super().compare_and_set(job, expected, state, rows)
        except UnavailableError:
            stored = self.load(job)
            if stored is not None and stored.state == state and stored.version != expected:
                return stored.version
            return Conflict()


def test_a_cold_load_reads_as_much_after_many_changes_as_after_few(
    shared: KafkaOptions, job: str
) -> None:
    read = {}
    for changes in (10, 300):
        _change(KafkaRegister(shared), job, changes)
        session = Session(shared)
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
    options = _options(kafka)
    reader, writer = Session(options), Session(options)
    try:
        here, there = PatientRegister(options, reader), PatientRegister(options, writer)
        _change(there, job, 2)
        assert _generation(here, job) == 1
        delete_topics(options.kafka, [options.registertopic])
        _until(lambda: there.load(job) is None)
        if changes == 1:
            assert here.load(job) is None
        _change(there, job, changes, first=10)
        assert _generation(here, job) == 10 + changes - 1
    finally:
        reader.close()
        writer.close()


def _generation(register: KafkaRegister, job: str) -> int | None:
    stored = register.load(job)
    return None if stored is None else stored.state.generation


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline


@pytest.mark.campaign
def test_the_time_of_a_load_does_not_grow_with_epochs(shared: KafkaOptions, job: str) -> None:
    taken = {}
    for changes in (10, 2_000):
        _change(KafkaRegister(shared), job, changes)
        cold = [_seconds(lambda: _cold(shared, job)) for _ in range(15)]
        warm = [_seconds(lambda: KafkaRegister(shared).load(job)) for _ in range(15)]
        taken[changes] = 1000 * statistics.median(cold), 1000 * statistics.median(warm)
        print(f"after {changes} changes: load cold {taken[changes][0]:.1f} ms, warm "
              f"{taken[changes][1]:.2f} ms")  # fmt: skip
    assert taken[2_000][0] < 2 * taken[10][0] + 10


def test_an_idle_job_is_found_behind_many_changes_of_another(
    shared: KafkaOptions, job: str
) -> None:
    stored = _create(shared, f"{job}@1")
    _change(KafkaRegister(shared), f"{job}@2", 100)
    session = Session(shared)
    assert KafkaRegister(shared, session).load(f"{job}@1") == stored
    session.close()


def test_a_state_larger_than_a_message_is_kept_in_parts(kafka: KafkaService) -> None:
    options = _options(kafka)
    _make(options, PARTITIONS, {"cleanup.policy": "compact", "max.message.bytes": "6000"})
    register = KafkaRegister(options)
    a_state_comes_back_as_it_was(lambda: KafkaRegister(options))
    large = replace(STATE, superseded=tuple(secrets.token_hex(16) for _ in range(1000)))
    assert len(state_to_text(large)) > 5 * 6000
    version = register.compare_and_set("job", None, large)
    assert not isinstance(version, Conflict)
    cold = Session(options)
    assert KafkaRegister(options, cold).load("job") == Stored(large, version)
    cold.close()
    # Each change takes the parts of the one before away.
    for _ in range(2):
        version = register.compare_and_set("job", version, replace(large, generation=2))
        assert not isinstance(version, Conflict)
    last = register.compare_and_set("job", version, STATE)
    assert register.load("job") == Stored(STATE, str(last))
    alive = {key for key, value in _everything(options, partition_of("job")).items() if value}
    assert [key for key in alive if key.startswith(b"job#")] == []


@pytest.mark.parametrize("client", [{}, {"kafka.message.max.bytes": "100000"}])
def test_a_state_of_megabytes_is_kept_although_the_client_takes_less_than_the_topic(
    kafka: KafkaService, job: str, client: dict[str, str]
) -> None:
    options = _options(kafka, client)
    large = replace(STATE, job=job, superseded=tuple(secrets.token_hex(16) for _ in range(60_000)))
    assert len(state_to_text(large)) > 2_000_000
    version = KafkaRegister(options).compare_and_set(job, None, large)
    cold = Session(options)
    assert KafkaRegister(options, cold).load(job) == Stored(large, str(version))
    cold.close()


def test_a_part_that_is_missing_or_damaged_is_named() -> None:
    version = version_after(None)
    records = records_of("job", version, "x" * 1000, 300)
    assert len(records) == 5
    for lost in range(4):
        cells = Cells()
        for number, (key, value) in enumerate(records):
            if number != lost:
                cells.apply(key, value)
        assert not cells.has("job")
        with pytest.raises(CorruptionError, match="lacks its part"):
            cells.get("job", "here")
    cells = Cells()
    for key, value in [*records, (records[0][0], b"y" * 300)]:
        cells.apply(key, value)
    with pytest.raises(CorruptionError, match="not what was written"):
        cells.get("job", "here")


@pytest.mark.parametrize("chunks", [10**12, 10**400, -1, 0, True, 2.5, "3", None])
def test_a_number_of_parts_that_cannot_be_is_an_error_and_costs_no_memory(chunks: object) -> None:
    cells = Cells()
    for key, value in records_of("job", version_after(None), "x" * 1000, 300):
        cells.apply(key, value)
    fields = json.loads(records_of("job", version_after(None), "x" * 1000, 300)[-1][1] or b"")
    cells.apply(b"job", json.dumps({**fields, "chunks": chunks}).encode())
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            cells.get("job", "here")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(
    ("partitions", "policy", "said"),
    [(PARTITIONS, "delete", "cleanup.policy"), (3, "compact", "3 partitions of 4")],
)
def test_a_topic_that_cannot_hold_registers_is_refused(
    kafka: KafkaService, partitions: int, policy: str, said: str
) -> None:
    options = _options(kafka)
    _make(options, partitions, {"cleanup.policy": policy})
    with pytest.raises(PreflightError, match=said):
        KafkaRegister(options).compare_and_set("job", None, STATE)


def test_the_topic_is_made_with_the_right_settings(shared: KafkaOptions, job: str) -> None:
    _create(shared, job)
    admin = AdminClient(dict(shared.kafka.pairs))
    resource = ConfigResource(ResourceType.TOPIC, shared.registertopic)
    found = admin.describe_configs([resource])[resource].result()
    assert found["cleanup.policy"].value == "compact"
    assert int(found["segment.bytes"].value) <= 4 << 20
    partitions = admin.list_topics().topics[shared.registertopic].partitions
    assert len(partitions) == PARTITIONS


def test_a_topic_that_is_not_there_holds_no_job(kafka: KafkaService) -> None:
    register = KafkaRegister(_options(kafka))
    assert register.load("job") is None
    assert register.jobs() == []


def test_a_coordinator_that_died_inside_its_change_holds_nobody_up(
    shared: KafkaOptions, job: str
) -> None:
    stored = _create(shared, job)
    dead = _half_written(shared, stored)
    began = time.monotonic()
    assert KafkaRegister(shared).load(job) == stored
    assert time.monotonic() - began < 8
    # Its last request comes late: nothing changes any more.
    with pytest.raises(FencedError):
        dead.commit()
    assert KafkaRegister(shared).load(job) == stored


def test_a_leader_that_answers_is_not_looked_for_anew_where_a_transaction_is_in_the_way(
    shared: KafkaOptions, job: str
) -> None:
    dead = _half_written(shared, _create(shared, job))
    session = Session(shared)
    tail = session.tail(partition_of(job))
    before = tail._consumer
    with pytest.raises(BlockedError):
        tail.load(job, 1.0)
    assert tail._consumer is before
    dead.commit()
    session.close()


def test_another_jobs_dead_coordinator_holds_nobody_up(shared: KafkaOptions, job: str) -> None:
    mine, other = f"{job}@1", f"{job}@2"
    dead = _half_written(shared, _create(shared, other), timeout_ms=600_000)
    began = time.monotonic()
    stored = _create(shared, mine)
    assert KafkaRegister(shared).load(mine) == stored
    assert time.monotonic() - began < 20
    with pytest.raises(FencedError):
        dead.commit()


def test_a_late_change_of_a_fenced_coordinator_changes_nothing(
    shared: KafkaOptions, job: str
) -> None:
    stored = _create(shared, job)
    late = _half_written(shared, stored)
    newer = Session(shared)
    version = KafkaRegister(shared, newer).compare_and_set(
        job, stored.version, replace(stored.state, generation=2)
    )
    assert not isinstance(version, Conflict)
    with pytest.raises(FencedError):
        late.commit()
    found = KafkaRegister(shared).load(job)
    assert found is not None
    assert (found.version, found.state.generation) == (version, 2)
    newer.close()


@pytest.mark.parametrize("times", [1, 2, 3, 4, 10**6])
def test_an_old_answer_lets_no_change_through(
    shared: KafkaOptions, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A stopped broker that goes on tells the ends that it knows, until it hears of its successor."""
    sessions, ask = list[Session](), log_offsets

    def new_store() -> KafkaRegister:
        sessions.append(Session(shared))
        return KafkaRegister(shared, sessions[-1])

    def old_answers(job: str) -> AbstractContextManager[object]:
        known = ask(shared.kafka, shared.registertopic, partition_of(job))
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
    shared: KafkaOptions, job: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    stored = _create(shared, job)
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
    version = KafkaRegister(shared).compare_and_set(job, stored.version, newer)
    assert len(calls) == (1 if lost == "the reply" else 2)
    assert KafkaRegister(shared).load(job) == Stored(newer, str(version))


@pytest.mark.parametrize("lost", ["the reply", "the request"])
def test_what_became_of_a_lost_commit_is_not_guessed_where_another_has_written_since(
    shared: KafkaOptions, job: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Theirs may stand on ours: "conflict" would say that ours never took effect."""
    stored = _create(shared, job)
    commit, other, calls = FencedProducer.commit, Session(shared), []

    def losing(producer: FencedProducer) -> None:
        calls.append(lost)
        if len(calls) > 1:
            return commit(producer)
        if lost == "the reply":
            commit(producer)
        producer.usable = False
        theirs = KafkaRegister(shared, other)
        there = theirs.load(job)
        assert there is not None
        after = theirs.compare_and_set(job, there.version, replace(there.state, run="another"))
        assert not isinstance(after, Conflict)
        raise UnavailableError("lost on purpose")

    monkeypatch.setattr(FencedProducer, "commit", losing)
    mine = replace(stored.state, generation=2)
    register = KafkaRegister(shared)
    if lost == "the reply":
        with pytest.raises(UnavailableError, match="written by others"):
            register.compare_and_set(job, stored.version, mine)
    else:
        assert isinstance(register.compare_and_set(job, stored.version, mine), Conflict)
    found = KafkaRegister(shared).load(job)
    assert found is not None
    assert (found.state.run, found.state.generation) == ("another", 2 if lost == "the reply" else 1)
    other.close()


def test_a_retired_job_is_forgotten_and_its_versions_never_come_again(
    shared: KafkaOptions, job: str
) -> None:
    register = KafkaRegister(shared)
    stored = _create(shared, job)
    assert register.retire(job)
    assert register.load(job) is None
    assert not register.retire(job)
    _create(shared, job)
    assert isinstance(register.compare_and_set(job, stored.version, stored.state), Conflict)
    assert job in [s.state.job for s in register.jobs()]
    assert register.others_on(stored.state.target, "nobody").count(job) == 1


@pytest.mark.campaign
def test_a_register_outlives_a_killed_broker(
    shared: KafkaOptions, job: str, kafka: KafkaService
) -> None:
    stored = _create(shared, job)
    kafka.kill()
    kafka.start()
    register = KafkaRegister(shared)
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


def _options(kafka: KafkaService, more: Mapping[str, str] | None = None) -> KafkaOptions:
    return KafkaOptions.parse(
        {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": "data",
            "registertopic": f"register-{secrets.token_hex(4)}",
            **(more or {}),
        }
    )


def _make(options: KafkaOptions, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient(dict(options.kafka.pairs))
    topic = NewTopic(options.registertopic, partitions, 1, config=config)
    admin.create_topics([topic])[options.registertopic].result()


def _create(options: KafkaOptions, job: str) -> Stored:
    state = replace(STATE, job=job)
    version = KafkaRegister(options).compare_and_set(job, None, state)
    assert not isinstance(version, Conflict)
    return Stored(state, version)


def _change(register: KafkaRegister, job: str, times: int, first: int = 0) -> None:
    stored = register.load(job)
    version = None if stored is None else stored.version
    for generation in range(first, first + times):
        changed = register.compare_and_set(
            job, version, replace(STATE, job=job, generation=generation)
        )
        assert not isinstance(changed, Conflict)
        version = changed


def _half_written(
    options: KafkaOptions, stored: Stored, timeout_ms: int = CELL_TIMEOUT_MS
) -> FencedProducer:
    """A coordinator that has written its cell, and stops before its commit."""
    producer = FencedProducer(options, stored.state.job, timeout_ms)
    newer = state_to_text(replace(stored.state, generation=9))
    records = records_of(stored.state.job, version_after(stored.version), newer, 10**5)
    producer.prepare(None, records, partition_of(stored.state.job))
    return producer


def _cold(options: KafkaOptions, job: str) -> None:
    session = Session(options)
    assert KafkaRegister(options, session).load(job) is not None
    session.close()


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _everything(options: KafkaOptions, partition: int) -> dict[bytes, bytes | None]:
    """The last committed value of each key."""
    given = {**dict(options.kafka.pairs), "group.id": "x", "enable.partition.eof": True}
    consumer = Consumer(given)
    consumer.assign([TopicPartition(options.registertopic, partition, 0)])
    found: dict[bytes, bytes | None] = {}
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            break
        found[message.key() or b""] = message.value()
    consumer.close()
    return found
