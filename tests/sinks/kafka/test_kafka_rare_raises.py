"""Errors of committers, ledger and register that no ordinary history meets; no broker is asked."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from abs_clients.kafka import timeouts
from abs_clients.kafka.attempts import side_topic as name_of
from abs_clients.kafka.transactions import Description, State
from abs_core.codec import state_to_text
from abs_core.contracts import Conflict
from abs_core.errors import (
    ConfigError,
    ContentionError,
    CorruptionError,
    FencedError,
    NotPreparedError,
    ProtocolError,
    RefusedError,
    RowError,
    UnavailableError,
)
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.patience import Patience
from abs_core.protocol import Changed
from abs_core.wal import FolderSegments, SegmentWriter
from abs_sinks.kafka import give_up_attempts, ledger, side_topic, twophase, wal
from abs_sinks.kafka.idempotent import IdempotentCommitter
from abs_sinks.kafka.ledger import LedgerPlace
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import session, store, topic
from abs_sinks.kafka.register.session import FencedProducer
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.tail import Tail
from abs_sinks.kafka.register.topic import StoredCell, version_after
from abs_testing.case import raises

OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "wal", "wal": "file:///x"}
)
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
STATE = JobState("0123456789abcdef", "job", "here", "lineage", 1, "run")
BATCH = pa.record_batch({"value": ["a", "b"]})

Patch = pytest.MonkeyPatch


def test_winners_are_not_written_for_a_state_in_which_no_epoch_is_finished() -> None:
    error = raises(ProtocolError, lambda: IdempotentCommitter(OPTIONS).co_commit([], None, STATE))
    assert "no epoch is finished" in error.what


def test_a_missing_segment_of_another_log_is_not_taken_for_one_that_was_sent() -> None:
    there = LedgerPlace("registers", "id", "file:///other").noted(Committable(HANDLE, 1, "d"))
    ledger.check_log([there], "file:///other")
    error = raises(ConfigError, lambda: ledger.check_log([there], "file:///x"))
    assert "this segment is in file:///other" in error.what


class Sender:
    """Takes records; time passes as it says."""

    def __init__(self) -> None:
        self.rows = 0

    def to(self, *_: object) -> Sender:
        return self

    def send(self, records: Any) -> None:
        self.rows += records.rows

    def flush(self) -> None:
        """Nothing is left."""


def segment(folder: Path) -> tuple[FolderSegments, Committable]:
    segments = FolderSegments(folder)
    writer = SegmentWriter(segments, HANDLE, BATCH.schema)
    writer.write(BATCH)
    seal = writer.finish()
    assert seal is not None
    return segments, seal.committable()


@pytest.mark.parametrize("looks", [0, 1])
def test_records_that_take_too_long_for_their_transaction_are_not_committed(
    looks: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The time is up after a batch, or after the last one."""
    segments, written = segment(tmp_path)
    left = [0.0, *[1.0] * looks]
    clock = SimpleNamespace(monotonic=lambda: left.pop(0) if left else 1e9)
    monkeypatch.setattr(wal, "time", clock)
    sender: Any = Sender()
    send = wal.sending(OPTIONS, segments, [written], None).send
    assert "take longer than" in raises(RefusedError, lambda: send(sender)).what


def test_a_segment_of_other_rows_than_its_committable_says_is_not_committed(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    segments, written = segment(tmp_path)
    monkeypatch.setattr(wal, "read_segment", lambda *_: [BATCH.slice(1)])
    sender: Any = Sender()
    send = wal.sending(OPTIONS, segments, [written], None).send
    assert "has 1 rows, but" in raises(CorruptionError, lambda: send(sender)).what


@pytest.mark.parametrize(
    ("state", "error", "said"),
    [
        (None, ConfigError, "is gone"),
        (replace(STATE, target="elsewhere"), ConfigError, "writes to elsewhere"),
        (replace(STATE, open=(Decision("lineage", 3, 1, ()),)), ProtocolError, "not finished"),
    ],
)
def test_attempts_are_given_up_of_the_jobs_own_register_without_a_decision(
    state: JobState | None, error: type[ConfigError], said: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(give_up_attempts, "identity", lambda _: "here")
    assert isinstance(give_up_attempts._raised(OPTIONS, "job", "new", STATE), Changed)
    told = raises(error, lambda: give_up_attempts._raised(OPTIONS, "job", "new", state))
    assert said in told.what


def test_an_entry_of_a_side_topic_that_others_keep_writing_is_an_error(monkeypatch: Patch) -> None:
    name = name_of("t")
    facts = {"t": SimpleNamespace(id="a"), name: SimpleNamespace(id="b")}
    for function, answer in {
        "_known": (None, None),
        "topic_facts": facts,
        "_loss": None,
        "_ids": side_topic.Birth("a", "b"),
        "_seen": facts,
    }.items():
        monkeypatch.setattr(side_topic, function, lambda *_, _a=answer, **__: _a)
    swaps = []

    def conflict(*given: object) -> Conflict:
        swaps.append(given)
        return Conflict()

    monkeypatch.setattr(KafkaRegister, "swap_text", conflict)
    error = raises(ContentionError, lambda: side_topic._settle(OPTIONS, "t", "job"))
    assert f"the entry of {name}" in error.what
    assert len(swaps) == side_topic.TRIES


@pytest.mark.parametrize("now", [None, Description(State.COMPLETE_ABORT, 7, 5, 60_000, 1)])
def test_a_transaction_that_is_not_open_after_its_last_record_is_not_prepared(
    now: Description | None, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(twophase, "describe_open", lambda *_: SimpleNamespace(now=now))
    writer = twophase.TwoPhaseWriter.__new__(twophase.TwoPhaseWriter)
    writer._options, writer._patience = OPTIONS, Patience(0.0)
    pool: Any = SimpleNamespace(written=None)
    task: Any = SimpleNamespace(handle=HANDLE)
    slot: Any = SimpleNamespace(name="id")
    writer._pool, writer._task = pool, task
    error = raises(NotPreparedError, lambda: writer._look(slot, 1))
    assert "not open any more" in error.what


def _producer() -> FencedProducer:
    producer = FencedProducer.__new__(FencedProducer)
    producer._topic, producer._name, producer._settings = "registers", "id", OPTIONS.kafka
    return producer


@pytest.mark.parametrize("now", [None, Description(State.EMPTY, 7, 5, 60_000, 1)])
def test_a_change_whose_transaction_another_has_ended_is_fenced(
    now: Description | None, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(session, "describe", lambda *_: {"id": now})
    error = raises(FencedError, lambda: _producer().begins_at(0))
    assert "not open any more" in error.what


@pytest.mark.parametrize("found", [None, (6, 10), (5, -1)])
def test_an_answer_of_a_broker_that_leads_no_longer_says_nothing_of_a_change(
    found: tuple[int, int] | None, monkeypatch: Patch
) -> None:
    now = Description(State.ONGOING, 7, 5, 60_000, 1)
    seen = None if found is None else SimpleNamespace(epoch=found[0], start_offset=found[1])
    monkeypatch.setattr(session, "describe", lambda *_: {"id": now})
    monkeypatch.setattr(session, "describe_producers", lambda *_: {("registers", 0): seen})
    monkeypatch.setattr(timeouts, "LEADER_SECONDS", 0.0)
    error = raises(UnavailableError, lambda: _producer().begins_at(0))
    assert "leads it no longer" in error.what


def _register(monkeypatch: Patch, producer: Any) -> KafkaRegister:
    register = KafkaRegister(OPTIONS, producer)
    monkeypatch.setattr(register, "_is_past", lambda *_, **__: False)
    monkeypatch.setattr(register, "_producer", lambda *_: producer)
    monkeypatch.setattr(register, "_open", lambda *_: producer)
    return register


def test_a_change_of_unknown_outcome_is_not_sent_again_before_its_handles_are_looked_at(
    monkeypatch: Patch,
) -> None:
    old = version_after(None)
    held: Any = SimpleNamespace(turn=lambda _: nullcontext(), version=old)
    register, writes = _register(monkeypatch, held), list[object]()
    monkeypatch.setattr(register, "_write", lambda *given: writes.append(given))
    swap = lambda: register.compare_and_set("job", old, STATE, float("inf"))  # noqa: E731
    assert "not written yet" in raises(UnavailableError, swap).what
    assert len(writes) == 1


def test_a_change_that_others_fence_again_and_again_ends_with_an_unknown_outcome(
    monkeypatch: Patch,
) -> None:
    old = version_after(None)
    held: Any = SimpleNamespace(turn=lambda _: nullcontext(), version=old)
    register, writes = _register(monkeypatch, held), list[object]()

    def fenced(*given: object) -> bool:
        writes.append(given)
        return False

    monkeypatch.setattr(register, "_write", fenced)
    monkeypatch.setattr("abs_sinks.kafka.register.store.time.sleep", lambda _: None)
    swap = lambda: register.compare_and_set("job", old, STATE)  # noqa: E731
    assert "written by others" in raises(UnavailableError, swap).what
    assert len(writes) == store.TRIES


def test_a_register_that_is_written_while_it_is_retired_stays(monkeypatch: Patch) -> None:
    cell = StoredCell(version_after(None), state_to_text(STATE), ())
    fenced: Any = SimpleNamespace(turn=lambda _: nullcontext(), cell=cell)
    register = _register(monkeypatch, fenced)
    monkeypatch.setattr(register, "load_text", lambda _: object())

    def refused(*_: object) -> None:
        raise FencedError("another has opened it (on purpose).", remedy="none.")

    monkeypatch.setattr(register, "_prepare", refused)
    assert "could not be deleted" in raises(ContentionError, lambda: register.retire("job")).what


def test_a_topic_that_was_made_and_does_not_appear_is_an_error(monkeypatch: Patch) -> None:
    made: list[object] = []
    admin = SimpleNamespace(create=lambda *given: made.append(given))
    monkeypatch.setattr(topic, "cluster", lambda _: SimpleNamespace(admin=admin))
    monkeypatch.setattr(topic, "topics_in_time", lambda *_, **__: {})
    error = raises(UnavailableError, lambda: topic.made(OPTIONS.kafka, "registers", 1, {}))
    assert "is not visible yet" in error.what
    assert made


def test_a_record_of_the_register_that_its_topic_does_not_take_is_no_rows_error() -> None:
    gave_up = list[bool]()

    def refused(*_: object) -> None:
        raise RowError("larger than max.message.bytes (on purpose)")

    producer: Any = _producer()
    sender = SimpleNamespace(send=refused)
    producer._transactions = SimpleNamespace(begin=lambda: None, to=lambda *_: sender)
    producer.timeout_ms, producer._job = 1000, "job"
    producer.give_up = lambda: gave_up.append(True)
    error = raises(RefusedError, lambda: producer.prepare(None, [(b"key", b"value")], 0))
    assert "holds the job's register" in error.what
    assert "No row of the job is wrong" in error.remedy
    assert gave_up == [True]


@pytest.mark.parametrize(
    ("code", "ends"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, True), (KafkaError._TRANSPORT, False)],
)
def test_an_error_that_does_not_pass_ends_the_reading_of_a_register(code: int, ends: bool) -> None:
    tail: Any = Tail.__new__(Tail)
    tail.name, tail._settings = "registers/0", OPTIONS.kafka
    message: Any = SimpleNamespace(error=lambda: KafkaError(code))
    if ends:
        raises(RefusedError, lambda: tail._take(message))
    else:
        tail._take(message)
