"""The rules of a register's cells: their records, and what a change finds; no broker is asked."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from abs_clients.kafka import timeouts
from abs_clients.kafka.topics import LEAST, TopicFacts, topic_facts
from abs_core.codec import state_to_text
from abs_core.contracts import Conflict
from abs_core.errors import (
    CorruptionError,
    NotPreparedError,
    PreflightError,
    UnavailableError,
)
from abs_core.model import JobState
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import session, store, topic
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.tail import BlockedError, MissingError
from abs_sinks.kafka.register.topic import (
    StoredCell,
    StoredCells,
    partition_of,
    records_of,
    version_after,
)
from abs_testing.case import raises
from tests.sinks.kafka.standins import Broker, Fate, Registers, fenced

OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "wal", "wal": "file:///x"}
)
Patch = pytest.MonkeyPatch


def test_a_part_that_is_missing_or_damaged_is_named() -> None:
    version = version_after(None)
    records = records_of("job", version, "x" * 1000, 300)
    assert len(records) == 5
    for lost in range(4):
        cells = StoredCells()
        for number, (key, value) in enumerate(records):
            if number != lost:
                cells.apply(key, value)
        assert not cells.has("job")
        with pytest.raises(CorruptionError, match="lacks its part"):
            cells.get("job", "here")
    cells = StoredCells()
    for key, value in [*records, (records[0][0], b"y" * 300)]:
        cells.apply(key, value)
    with pytest.raises(CorruptionError, match="not what was written"):
        cells.get("job", "here")


@pytest.mark.parametrize("value", [b"state", b"", None])
def test_a_cells_record_is_as_given_and_no_pandas_is_imported_for_it(value: bytes | None) -> None:
    """pyarrow imports it for the first array or scalar made of Python's values: 0.2 s of a commit."""
    lines = (
        "import sys",
        "from abs_sinks.kafka.librdkafka import _rows",
        "from abs_sinks.kafka.records import single",
        f"print([*_rows(single(b'job', {value!r}, partition=3), 'register', [])])",
        "print('pandas' in sys.modules)",
    )
    ran = [sys.executable, "-c", "\n".join(lines)]
    told = subprocess.run(ran, check=True, capture_output=True, text=True).stdout.splitlines()
    assert told == [str([("register", value, b"job", 3, None, None, 0, None)]), "False"]


@pytest.mark.parametrize("chunks", [10**12, 10**400, -1, 0, True, 2.5, "3", None])
def test_a_number_of_parts_that_cannot_be_is_an_error_and_costs_no_memory(chunks: object) -> None:
    cells = StoredCells()
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


def test_a_state_that_just_fits_is_one_record() -> None:
    version = version_after(None)
    [(_, value)] = records_of("job", version, "x" * 1000, 10_000)
    assert value is not None
    assert len(records_of("job", version, "x" * 1000, len(value))) == 1
    assert len(records_of("job", version, "x" * 1000, len(value) - 1)) == 2


def test_cells_are_what_their_newest_records_say() -> None:
    cells = StoredCells()
    cells.apply(None, b"of nobody")
    assert not cells.has("one")
    for job, text, at in (("one", "a", 5), ("one", "b", 6), ("two", "c", 7)):
        [(key, value)] = records_of(job, version_after(None), text, 10_000)
        cells.apply(key, value, at)
    cells.apply(b"two", None, 8)
    assert cells.has("one")
    assert cells.has("two")
    assert cells.get("two", "here") is None
    [(job, cell)] = cells.all("here").items()
    assert (job, cell.text, cell.chunks, cell.changed) == ("one", "b", (), 6)


def test_parts_that_were_taken_away_are_missed() -> None:
    cells = StoredCells()
    records = records_of("job", version_after(None), "x" * 1000, 300)
    for key, value in records:
        cells.apply(key, value)
    found = cells.get("job", "here")
    assert found is not None
    assert (found.text, list(found.chunks)) == ("x" * 1000, [key for key, _ in records[:-1]])
    cells.apply(records[0][0], None)
    raises(CorruptionError, lambda: cells.get("job", "here"))


def test_the_cells_of_a_job_are_in_one_partition_for_ever() -> None:
    assert [partition_of(job) for job in ("a", "b", "job", "orders", "")] == [3, 1, 0, 2, 0]
    for job in ("a", "b", "job"):
        of_job = {partition_of(f"{job}{more}") for more in ("", "@token", "+wal", "@token+wal")}
        assert of_job == {partition_of(job)}


@pytest.mark.parametrize(
    ("replicas", "least", "set_to"), [(1, "1", []), (2, "1", ["2"]), (3, "2", []), (3, "3", [])]
)
@pytest.mark.parametrize("refuses", [False, True])
def test_two_of_several_replicas_must_have_a_record(
    replicas: int, least: str, set_to: Sequence[str], refuses: bool, standins: list[Broker]
) -> None:
    standins += [Broker(refuses=KafkaError.TOPIC_AUTHORIZATION_FAILED if refuses else 0)]
    topic.need_two(OPTIONS.kafka, TopicFacts("t", 4, replicas, configs=((LEAST, least),)))
    assert standins[0].set == [(LEAST, text) for text in set_to]


def test_what_was_known_of_a_topic_before_does_not_count(standins: list[Broker]) -> None:
    broker = Broker(["t"], configs={"cleanup.policy": "compact"}, partitions=4)
    standins += [broker]
    assert topic_facts(OPTIONS.kafka, ["t"])["t"].partitions == 4
    broker.partitions = 8
    assert topic.made(OPTIONS.kafka, "t", 4, {}).partitions == 8
    broker.partitions = 9
    found = topic.find_topic(OPTIONS.kafka, "t")
    assert found is not None
    assert found.partitions == 9


OLD, THEIRS, LATER = "3-old", "4-theirs", "5-theirs"
NOT_PREPARED = NotPreparedError("its rows are gone (on purpose).")
UNKNOWN = Fate(answered=False, done=False)


@pytest.mark.parametrize(
    ("there", "fates", "writes", "found"),
    [
        (OLD, [], 1, "mine"),
        (OLD, [Fate(answered=False)], 1, "mine"),  # it took effect, and the answer was lost
        (OLD, [UNKNOWN], 2, "mine"),  # it did not
        (OLD, [fenced()], 2, "mine"),
        (THEIRS, [], 0, Conflict),
        (None, [], 0, Conflict),
        (OLD, [fenced(THEIRS)], 1, Conflict),
        (OLD, [fenced(LATER)], 1, Conflict),  # it was fenced: nothing of it is there
        (
            OLD,
            [replace(UNKNOWN, then=THEIRS)],
            1,
            Conflict,
        ),  # it has the number that ours would have
        (OLD, [replace(UNKNOWN, then=LATER)], 1, UnavailableError),  # ours may have been before it
        (OLD, [Fate(answered=False, then=LATER)], 1, UnavailableError),
        (OLD, [replace(UNKNOWN, then="")], 1, Conflict),
        (OLD, [Fate(NOT_PREPARED, then=THEIRS)], 1, Conflict),  # a successor has swept the rows
        (OLD, [Fate(NOT_PREPARED)], 1, NotPreparedError),
    ],
)
def test_a_change_tells_by_the_cells_version_whether_it_took_effect(
    there: str | None, fates: Sequence[Fate], writes: int, found: Any, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    registers: Any = Registers([*fates])
    if there is not None:
        registers.put("job", "text", there)
    register = KafkaRegister(OPTIONS, registers)

    def swap() -> str | Conflict:
        return register.swap_text("job", OLD, "mine")

    if found is Conflict:
        assert isinstance(swap(), Conflict)
    elif found == "mine":
        version = swap()
        assert registers.cells["job"] == StoredCell(str(version), "mine")
        assert {*registers.tried} == {("job", version)}, (
            "it has one version, however often it is sent"
        )
    else:
        raises(found, swap)
    assert len(registers.tried) == writes


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("held", ["1-a", "2-b", "none"])
def test_a_producer_is_opened_anew_where_the_kept_one_cannot_write_the_change(
    held: str, fits: bool, late: bool, rows: bool
) -> None:
    asked = list[int]()

    def fitting(_: object, timeout_ms: int) -> bool:
        asked.append(timeout_ms)
        return fits

    kept: Any = SimpleNamespace(version=held, fits=fitting, may_carry_rows=not late)
    registers: Any = Registers()
    registers.kept = None if held == "none" else kept
    registers.put("job", "text", "1-a")
    given: Any = SimpleNamespace(timeout_ms=77) if rows else None
    timeout_ms = 77 if rows else timeouts.CELL_TIMEOUT_MS
    it_will_do = held == "1-a" and fits and not (rows and late)
    producer = KafkaRegister(OPTIONS, registers)._producer("job", "1-a", given)
    assert (producer is kept) is it_will_do
    assert registers.opened == ([] if it_will_do else [("job", timeout_ms)])
    assert set(asked) <= {timeout_ms}


class Producer:
    """Takes what is written."""

    def __init__(self, cell: StoredCell | None, fails: bool = False) -> None:
        self.cell, self.fails, self.has_written = cell, fails, True
        self.records: list[topic.Record] = []

    @property
    def version(self) -> str | None:
        return None if self.cell is None else self.cell.version

    def prepare(self, _: object, records: Sequence[topic.Record], partition: int) -> None:
        assert partition == partition_of("job")
        self.records = list(records)

    def commit(self) -> None:
        if self.fails:
            raise UnavailableError("no answer (on purpose).")


def _write(producer: Producer, text: str, limit: int = 10**6) -> tuple[bool | None, list[Any]]:
    noted = list[Any]()
    tail = SimpleNamespace(reads=3, wrote=lambda *given: noted.append(given))
    held: Any = SimpleNamespace(
        topic=lambda: SimpleNamespace(max_message_bytes=limit), tail=lambda _: tail
    )
    register = KafkaRegister(OPTIONS, held)
    given: Any = producer
    return register._write(given, "job", "2-new", text, None, None), noted


@pytest.mark.parametrize("old", [None, "x" * 9000])
@pytest.mark.parametrize("new", ["x" * 9000, "y" * 9000, "y"])
def test_a_change_writes_its_parts_then_itself_then_takes_the_old_parts_away(
    old: str | None, new: str
) -> None:
    size = 4096 - store.ENVELOPE - len("job")
    before = [] if old is None else records_of("job", "1-old", old, size)
    cell = None if old is None else StoredCell("1-old", old, tuple(key for key, _ in before[:-1]))
    producer = Producer(cell)
    done, noted = _write(producer, new, 4096)
    assert done is True
    after = records_of("job", "2-new", new, size)
    kept = {key for key, _ in after}
    gone: list[topic.Record] = [(key, None) for key, _ in before if key not in kept]
    assert producer.records == [*after, *gone]
    assert producer.cell == StoredCell("2-new", new, tuple(key for key, _ in after[:-1]))
    assert noted == [(producer.records, 3)]
    cells = StoredCells()
    for key, value in [*before, *producer.records]:
        cells.apply(key, value)
    assert cells.get("job", "here") == producer.cell


def test_a_change_whose_commit_is_not_answered_leaves_the_cell_as_it_was_known() -> None:
    cell = StoredCell("1-old", "x")
    producer = Producer(cell, fails=True)
    assert _write(producer, "y") == (None, [])
    assert producer.cell is cell


@pytest.mark.parametrize("mine", ["1-a", "2-b", None])
@pytest.mark.parametrize("look", [False, True])
def test_a_cell_that_this_process_wrote_last_is_not_read_unless_it_is_looked_at(
    mine: str | None, look: bool
) -> None:
    loads = list[str]()

    def load(key: str, _: float) -> StoredCell:
        loads.append(key)
        return StoredCell("2-b", "x")

    producer = None if mine is None else Producer(StoredCell(mine, "x"))
    held: Any = SimpleNamespace(
        producer=lambda _: producer, tail=lambda _: SimpleNamespace(load=load)
    )
    assert KafkaRegister(OPTIONS, held)._is_past("job", "1-a", look=look) is (look or mine != "1-a")
    assert bool(loads) is (look or mine != "1-a")


def _raising(error: BaseException) -> Any:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


def test_a_cell_that_cannot_be_read_now_is_not_known_to_be_past() -> None:
    for error in (BlockedError("on purpose"), MissingError("on purpose")):
        tail = SimpleNamespace(load=_raising(error))
        held: Any = SimpleNamespace(producer=lambda _: None, tail=lambda _, tail=tail: tail)
        assert KafkaRegister(OPTIONS, held)._is_past("job", "1-a") is False


@pytest.mark.parametrize("there", [True, False])
def test_a_topic_that_is_not_known_holds_no_job_only_where_it_is_not_there(there: bool) -> None:
    tail = SimpleNamespace(all=_raising(MissingError("on purpose")))
    held: Any = SimpleNamespace(tail=lambda _: tail, topic_exists=lambda: there)
    register = KafkaRegister(OPTIONS, held)
    if there:
        raises(MissingError, register.jobs)
    else:
        assert register.jobs() == []


@pytest.mark.parametrize("seconds", [timeouts.APPEARS_SECONDS, timeouts.APPEARS_SECONDS + 0.1])
def test_a_topic_that_was_made_just_now_is_waited_for_a_bounded_time(
    seconds: float, monkeypatch: Patch
) -> None:
    clock = iter([0.0, seconds])
    cell = StoredCell("1-a", "x")
    answers: list[Any] = [_raising(MissingError("on purpose")), lambda *_: cell]
    tail = SimpleNamespace(load=lambda *given: answers.pop(0)(*given))
    held: Any = SimpleNamespace(tail=lambda _: tail)
    time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None)
    monkeypatch.setattr(store, "time", time)
    register = KafkaRegister(OPTIONS, held)
    if seconds > timeouts.APPEARS_SECONDS:
        raises(MissingError, lambda: register._read("job"))
    else:
        assert register._read("job") is cell


def test_a_transaction_in_the_way_is_ended_before_the_cell_is_read_again() -> None:
    said = list[object]()
    cell = StoredCell("1-a", "x")

    def load(*_: object) -> StoredCell:
        said.append("load")
        if len(said) == 1:
            raise BlockedError("on purpose")
        return cell

    held: Any = SimpleNamespace(
        tail=lambda _: SimpleNamespace(load=load), end_writers=lambda of: said.append(of)
    )
    assert KafkaRegister(OPTIONS, held)._read("job") is cell
    assert said == ["load", partition_of("job"), "load"]


def test_a_producer_whose_commit_failed_is_not_used_again() -> None:
    producer: Any = session.FencedProducer.__new__(session.FencedProducer)
    producer.usable, producer.has_written = True, False
    producer._transactions = SimpleNamespace(commit=_raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        producer.commit()
    assert (producer.usable, producer.has_written) == (False, False)


@pytest.mark.parametrize(("changed", "seconds"), [(None, None), (5500, 5.5)])
def test_a_cells_time_is_told_in_seconds(changed: int | None, seconds: float | None) -> None:
    state = JobState("0123456789abcdef", "job", "here", "lineage", 1, "run")
    cell = StoredCell("1-a", state_to_text(state), (), changed)
    found = KafkaRegister(OPTIONS)._stored("job", cell)
    assert (found.state, found.version, found.changed) == (state, "1-a", seconds)


@pytest.mark.parametrize(("limit", "size"), [(4096, 4096 - 1024 - 3), (1536, 768), (1500, 750)])
def test_a_part_is_as_large_as_messages_may_be_and_half_of_that_at_least(
    limit: int, size: int
) -> None:
    producer = Producer(None)
    assert _write(producer, "x" * 9000, limit)[0] is True
    assert {len(value or b"") for _, value in producer.records[:-2]} == {size}


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    ("policy", "partitions", "said"),
    [
        ("compact", 4, ""),
        (" compact ", 5, ""),
        ("delete", 4, "cleanup.policy is delete"),
        ("compact,delete", 4, "cleanup.policy is compact,delete"),
        ("compact", 3, "3 partitions of 4"),
    ],
)
def test_a_topic_that_would_lose_registers_is_refused(
    policy: str, partitions: int, said: str, told: bool, standins: list[Broker]
) -> None:
    standins += [Broker(configs={} if told else {"cleanup.policy": policy})]
    configs = (("cleanup.policy", policy),) if told else ()
    found = TopicFacts("t", partitions, 1, configs=configs)
    if not said:
        assert topic._checked(OPTIONS.kafka, found) is found
        return
    assert said in raises(PreflightError, lambda: topic._checked(OPTIONS.kafka, found)).what
