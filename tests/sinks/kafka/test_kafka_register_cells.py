"""The rules of a register's cells: their records, and what a change finds; no broker is asked."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from abs_clients.kafka import timeouts
from abs_clients.kafka.topics import LEAST
from abs_core.codec import state_to_text
from abs_core.contracts import Conflict
from abs_core.crash import CrashPoint
from abs_core.errors import (
    CorruptionError,
    NotPreparedError,
    PreflightError,
    RefusedError,
    UnavailableError,
)
from abs_core.model import JobState
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import session, store, topic
from abs_sinks.kafka.register.session import KEPT_PRODUCERS, Session
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
    replicas: int, least: str, set_to: Sequence[str], refuses: bool, monkeypatch: Patch
) -> None:
    given = list[str]()

    def set_config(_: str, name: str, value: str) -> None:
        assert name == "min.insync.replicas"
        given.append(value)
        if refuses:
            raise RefusedError("it may not (on purpose).")

    admin = SimpleNamespace(set_config=set_config)
    monkeypatch.setattr(topic, "cluster", lambda _: SimpleNamespace(admin=admin))
    found: Any = SimpleNamespace(name="t", replicas=replicas, configs=[(LEAST, least)])
    topic.need_two(OPTIONS.kafka, found)
    assert given == set_to


def test_what_was_known_of_a_topic_before_does_not_count(monkeypatch: Patch) -> None:
    now, before = (
        SimpleNamespace(replicas=1, partitions=partitions, configs=(), cleanup_policy="compact")
        for partitions in (8, 4)
    )

    def topics(_: object, names: Sequence[str], *, again: bool = False) -> dict[str, Any]:
        return dict.fromkeys(names, now if again else before)

    admin = SimpleNamespace(create=lambda *_: None)
    monkeypatch.setattr(topic, "cluster", lambda _: SimpleNamespace(admin=admin))
    for name in ("topics_in_time", "topic_facts"):
        monkeypatch.setattr(topic, name, topics)
    assert topic.made(OPTIONS.kafka, "t", 4, {}).partitions == 8
    found = topic.find_topic(OPTIONS.kafka, "t")
    assert found is not None
    assert found.partitions == 8


def _changing(
    held: Sequence[str | None], done: Sequence[bool | Exception | None], monkeypatch: Patch
) -> tuple[KafkaRegister, list[str]]:
    """A register whose cell is this at each try, and whose writes end so.

    In ``held`` "mine" is the version that is written.
    """
    versions, ends, wrote = list(held), list(done), list[str]()
    register = KafkaRegister(OPTIONS, SimpleNamespace(turn=lambda _: nullcontext()))  # type: ignore[arg-type]

    def producer(*_: object) -> Any:
        at = versions.pop(0)
        return SimpleNamespace(version=wrote[-1] if at == "mine" else at)

    def write(_: object, _key: str, version: str, *__: object) -> bool | None:
        wrote.append(version)
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr(register, "_producer", producer)
    monkeypatch.setattr(register, "_write", write)
    monkeypatch.setattr(register, "_is_past", lambda *_, look=False: look and not versions)
    monkeypatch.setattr("abs_sinks.kafka.register.store.time.sleep", lambda _: None)
    return register, wrote


OLD, THEIRS, LATER = "3-old", "4-theirs", "5-theirs"
NOT_PREPARED = NotPreparedError("its rows are gone (on purpose).")


@pytest.mark.parametrize(
    ("held", "done", "writes", "found"),
    [
        ([OLD], [True], 1, "mine"),
        ([OLD, "mine"], [None], 1, "mine"),  # it took effect, and the answer was lost
        ([OLD, OLD], [None, True], 2, "mine"),  # it did not
        ([OLD, OLD], [False, True], 2, "mine"),
        ([THEIRS], [], 0, Conflict),
        ([None], [], 0, Conflict),
        ([OLD, THEIRS], [False], 1, Conflict),
        ([OLD, LATER], [False], 1, Conflict),  # it was fenced: nothing of it is there
        ([OLD, THEIRS], [None], 1, Conflict),  # theirs has the number that ours would have
        ([OLD, LATER], [None], 1, UnavailableError),  # ours may have been there before theirs
        ([OLD, None], [None], 1, Conflict),
        ([OLD], [NOT_PREPARED], 1, Conflict),  # a successor has swept the rows
        ([OLD, OLD], [NOT_PREPARED], 1, NotPreparedError),
    ],
)
def test_a_change_tells_by_the_cells_version_whether_it_took_effect(
    held: Sequence[str | None],
    done: Sequence[bool | Exception | None],
    writes: int,
    found: Any,
    monkeypatch: Patch,
) -> None:
    register, wrote = _changing(held, done, monkeypatch)

    def swap() -> str | Conflict:
        return register.swap_text("job", OLD, "text")

    if found is Conflict:
        assert isinstance(swap(), Conflict)
    elif found == "mine":
        assert swap() == wrote[-1]
        assert len({*wrote}) == 1, "a change has one version, however often it is sent"
    else:
        raises(found, swap)
    assert len(wrote) == writes


def test_a_process_keeps_few_producers_and_none_that_cannot_be_used(monkeypatch: Patch) -> None:
    def opened(_: object, job: str, timeout_ms: int) -> Any:
        return SimpleNamespace(job=job, usable=True, timeout_ms=timeout_ms)

    monkeypatch.setattr(session, "FencedProducer", opened)
    kept = Session(OPTIONS)
    jobs = [f"job{number}" for number in range(KEPT_PRODUCERS + 1)]
    made: list[Any] = [kept.open_producer(OPTIONS, job, 1000) for job in jobs]
    assert [kept.producer(job) for job in jobs] == [None, *made[1:]]
    made[1].usable = False
    assert kept.producer(jobs[1]) is None
    assert kept.open_producer(OPTIONS, jobs[1], 1000) is kept.producer(jobs[1])
    assert kept.producer(jobs[2]) is made[2]


@pytest.mark.parametrize("columnar", [True, False])
@pytest.mark.parametrize("opened", ["2pc", "wal"])
@pytest.mark.parametrize("protocol", ["2pc", "wal", "idempotent"])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_producer_is_kept_for_the_same_client_and_no_longer_transaction(
    columnar: bool, opened: str, protocol: str, more: int, monkeypatch: Patch
) -> None:
    def options(of: str) -> Any:
        return SimpleNamespace(
            protocol=of,
            registertopic="r",
            kafka=None,
            choice=SimpleNamespace(columnar=columnar),
        )

    asked = list[bool]()

    def transactional(*_: object, columnar: bool, **__: object) -> None:
        asked.append(columnar)

    monkeypatch.setattr(session, "transactional_producer", transactional)
    kept = session.FencedProducer(options(opened), "job", 1000)
    other = session.FencedProducer(options(protocol), "job", 1000 + more)
    assert asked == [columnar and opened == "wal", columnar and protocol != "2pc"]
    assert kept.fits(options(protocol), other.timeout_ms) is (asked[0] == asked[1] and more <= 0)


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("held", ["1-a", "2-b", "none"])
def test_a_producer_is_opened_anew_where_the_kept_one_cannot_write_the_change(
    held: str, fits: bool, late: bool, rows: bool, monkeypatch: Patch
) -> None:
    asked = list[int]()

    def fitting(_: object, timeout_ms: int) -> bool:
        asked.append(timeout_ms)
        return fits

    kept: Any = SimpleNamespace(version=held, fits=fitting, may_carry_rows=not late)
    found: Any = None if held == "none" else kept
    register = KafkaRegister(OPTIONS, SimpleNamespace(producer=lambda _: found))  # type: ignore[arg-type]
    opened = list[tuple[str, int]]()
    monkeypatch.setattr(register, "_open", lambda *given: opened.append(given))
    given: Any = SimpleNamespace(timeout_ms=77) if rows else None
    timeout_ms = 77 if rows else timeouts.CELL_TIMEOUT_MS
    it_will_do = held == "1-a" and fits and not (rows and late)
    assert register._producer("job", "1-a", given) is (kept if it_will_do else None)
    assert opened == ([] if it_will_do else [("job", timeout_ms)])
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


@pytest.mark.parametrize("point", [None, CrashPoint.INSIDE_CO_COMMIT])
def test_a_kill_can_be_asked_for_between_the_rows_of_a_change_and_its_commit(
    point: CrashPoint | None, monkeypatch: Patch
) -> None:
    said = list[object]()
    monkeypatch.setattr(store, "reached", said.append)
    monkeypatch.setattr(Producer, "commit", lambda _: said.append("commit"))
    tail = SimpleNamespace(reads=3, wrote=lambda *_: None)
    held: Any = SimpleNamespace(
        topic=lambda: SimpleNamespace(max_message_bytes=4096), tail=lambda _: tail
    )
    rows: Any = SimpleNamespace(point=point)
    given: Any = Producer(None)
    assert KafkaRegister(OPTIONS, held)._write(given, "job", "2-new", "x", rows, None)
    assert said == [*([] if point is None else [point]), "commit"]


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


def test_only_registers_transactions_on_the_partition_are_ended(monkeypatch: Patch) -> None:
    mine, other = (OPTIONS.registertopic, 2), (OPTIONS.registertopic, 1)
    found = {
        "abs-register.here": SimpleNamespace(partitions={mine}),
        "abs-register.beside": SimpleNamespace(partitions={other}),
        "abs-register.gone": None,
    }
    ended = list[str]()
    monkeypatch.setattr(session, "listed", lambda *_, **__: [*found, "somebody's"])
    monkeypatch.setattr(session, "describe", lambda _, names: {name: found[name] for name in names})
    monkeypatch.setattr(session, "init_producer_id", lambda _, name: ended.append(name))
    Session(OPTIONS).end_writers(2)
    assert ended == ["abs-register.here"]


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
    policy: str, partitions: int, said: str, told: bool, monkeypatch: Patch
) -> None:
    admin = SimpleNamespace(configs=lambda _: {"cleanup.policy": policy})
    monkeypatch.setattr(topic, "cluster", lambda _: SimpleNamespace(admin=admin))
    known = policy if told else None
    if told:
        admin.configs = None  # it is not asked again
    found: Any = SimpleNamespace(name="t", partitions=partitions, cleanup_policy=known)
    if not said:
        assert topic._checked(OPTIONS.kafka, found) is found
        return
    assert said in raises(PreflightError, lambda: topic._checked(OPTIONS.kafka, found)).what
