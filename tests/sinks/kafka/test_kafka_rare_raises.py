"""Errors of committers, ledger and register that no ordinary history meets; no broker is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from abs_clients.kafka.cluster import cluster
from abs_core.codec import state_to_text
from abs_core.errors import (
    ConfigError,
    ContentionError,
    CorruptionError,
    ProtocolError,
    RefusedError,
    RowError,
    UnavailableError,
)
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.protocol import Changed
from abs_core.wal import FolderSegments, SegmentWriter
from abs_sinks.kafka import give_up_attempts, ledger, wal
from abs_sinks.kafka.idempotent import IdempotentCommitter
from abs_sinks.kafka.ledger import LedgerPlace
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import store, topic
from abs_sinks.kafka.register.session import FencedProducer
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.tail import Tail
from abs_testing.case import raises
from tests.sinks.kafka.standins import Broker, Fate, Registers, fenced

OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "wal", "wal": "file:///x"}
)
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
STATE = JobState("0123456789abcdef", "job", "kafka:here/t", "lineage", 1, "run")
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
    tmp_path: Path,
) -> None:
    segments, written = segment(tmp_path)
    sender: Any = Sender()
    send = wal.sending(OPTIONS, segments, [replace(written, rows=3)], None).send
    assert "rows 2 instead of 3" in raises(CorruptionError, lambda: send(sender)).what


@pytest.mark.parametrize(
    ("state", "error", "said"),
    [
        (None, ConfigError, "is gone"),
        (replace(STATE, target="elsewhere"), ConfigError, "writes to elsewhere"),
        (replace(STATE, open=(Decision("lineage", 3, 1, ()),)), ProtocolError, "not finished"),
    ],
)
def test_attempts_are_given_up_of_the_jobs_own_register_without_a_decision(
    state: JobState | None, error: type[ConfigError], said: str
) -> None:
    cluster(OPTIONS.kafka).learn("cluster id", "here")
    assert isinstance(give_up_attempts._raised(OPTIONS, "job", "new", STATE), Changed)
    told = raises(error, lambda: give_up_attempts._raised(OPTIONS, "job", "new", state))
    assert said in told.what


def _producer() -> FencedProducer:
    producer = FencedProducer.__new__(FencedProducer)
    producer._topic, producer._name, producer._settings = "registers", "id", OPTIONS.kafka
    return producer


@pytest.fixture
def registers(monkeypatch: Patch) -> Registers:
    """The register's topic in this process, with a cell of the job."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    made = Registers()
    made.put("job", state_to_text(STATE))
    return made


def _swapping(registers: Any, deadline: float | None = None) -> Callable[[], object]:
    held = registers.cells["job"].version
    register = KafkaRegister(OPTIONS, registers)
    return lambda: register.compare_and_set("job", held, STATE, deadline)


def test_a_change_of_unknown_outcome_is_not_sent_again_before_its_handles_are_looked_at(
    registers: Registers,
) -> None:
    registers.fates = [Fate(answered=False, done=False)]
    assert "not written yet" in raises(UnavailableError, _swapping(registers, float("inf"))).what
    assert len(registers.tried) == 1


def test_a_change_that_others_fence_again_and_again_ends_with_an_unknown_outcome(
    registers: Registers,
) -> None:
    registers.fates = [fenced()] * store.TRIES
    assert "written by others" in raises(UnavailableError, _swapping(registers)).what
    assert len(registers.tried) == store.TRIES


def test_a_register_that_is_written_while_it_is_retired_stays(registers: Any) -> None:
    registers.fates = [fenced()]
    retire = lambda: KafkaRegister(OPTIONS, registers).retire("job")  # noqa: E731
    assert "could not be deleted" in raises(ContentionError, retire).what
    assert "job" in registers.cells


def test_a_topic_that_was_made_and_does_not_appear_is_an_error(standins: list[Broker]) -> None:
    standins += [Broker()]
    error = raises(UnavailableError, lambda: topic.made(OPTIONS.kafka, "registers", 1, {}))
    assert "is not visible yet" in error.what
    assert standins[0].made == ["registers"]


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
