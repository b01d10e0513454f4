"""The runtime with real threads, a real snapshot store and a sink that commits in two phases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event, Timer
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from abs_core.codec import committable_from_json
from abs_core.errors import (
    ConfigError,
    CorruptionError,
    DataError,
    OptionError,
    ProtocolError,
    RegisterLostError,
    UnavailableError,
)
from abs_core.fakes import FakeSink, FakeTarget
from abs_core.registers.memory import MemoryRegister
from abs_core.runtime import (
    STRATEGIES,
    EventTime,
    Graph,
    Job,
    Restore,
    Settings,
    describe,
    mermaid,
    region,
)
from abs_core.runtime.context import TaskContext
from abs_core.runtime.operators import Operator
from abs_core.runtime.region import Region
from abs_core.runtime.tables import TableReader, TableSource
from abs_core.source import Split
from abs_core.state.contracts import BlobRef, Snapshot, StateHandle
from abs_core.state.heap import HeapBackend
from abs_core.state.local_store import LocalSnapshotStore
from abs_core.testing.harness import SCHEMA
from tests.core.runtime.bench import Bench
from tests.core.runtime.jobs.counting import count, expected, graph, tables


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("way", STRATEGIES)
def test_every_way_commits_each_row_once(bench: Bench, way: str) -> None:
    bench.job(graph(bench.sink, rows=2_000), way).run()
    bench.check(2_000)


def test_a_finished_job_that_is_started_again_writes_nothing(bench: Bench) -> None:
    for _ in range(2):
        bench.job(graph(bench.sink, rows=300)).run()
    bench.check(300)


class _Fails:
    """Fails once, after some batches."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("planted")
        return batch


def test_a_failed_region_is_restored_while_the_other_goes_on(bench: Bench) -> None:
    built = graph(bench.sink, rows=2_000)
    other = built.source("other", TableSource(tables(2_000), 20))
    (
        other.map("fails", _Fails(30), parallelism=1)
        .key_by("key")
        .process("count2", count, SCHEMA, lambda c: {"count": c.value("count")})
        .sink("out2", bench.sink)
    )
    made: Counter[str] = Counter()
    for id_ in ("count", "count2"):
        built.nodes[id_].make = _counted(built.nodes[id_].make, made)
    restored: list[str] = []
    bench.job(built, observe=lambda what, task, n: restored.append(what)).run()
    assert "restored" in restored
    assert made == {"count": 2, "count2": 4}, (
        "the tasks of the other region are those it began with"
    )
    ids, values = expected(2_000)
    assert Counter(id_ for id_, _ in bench.rows()) == Counter(ids + ids)
    assert Counter(value for _, value in bench.rows()) == Counter(values + values)
    assert bench.prepared() == 0


def _counted(make, made: Counter[str]):  # type: ignore[no-untyped-def]
    def counting(context: TaskContext) -> Operator:
        made[context.task.operator] += 1
        operator: Operator = make(context)
        return operator

    return counting


def test_no_state_is_closed_while_a_copy_of_it_is_being_persisted(bench: Bench) -> None:
    persisting, failed, closed = Event(), Event(), Event()
    too_early: list[bool] = []

    class Slow:
        """A copy that takes until after the region has failed."""

        def __init__(self, copy: Snapshot) -> None:
            self.close = copy.close
            self._copy = copy

        def persist(self) -> StateHandle:
            persisting.set()
            failed.wait(30)
            too_early.append(closed.wait(0.3))
            return self._copy.persist()

    class Watched(HeapBackend):
        def snapshot(self, checkpoint: int) -> Any:
            return (
                super().snapshot(checkpoint)
                if failed.is_set()
                else Slow(super().snapshot(checkpoint))
            )

        def close(self) -> None:
            closed.set()
            super().close()

    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not failed.is_set():
            persisting.wait(30)
            failed.set()
            raise RuntimeError("once")
        return batch

    built = Graph("slow")
    rows = built.source("rows", TableSource(tables(10), 2)).key_by("key")
    counted = rows.reduce("sum", "sum", "id").map("text", as_text("sum")).map("fails", fail)
    counted.sink("out", bench.sink)
    bench.job(built, backend=Watched).run()
    assert too_early == [False]


def test_tasks_of_a_region_that_fail_at_once_cost_one_restart(bench: Bench) -> None:
    both, failing = Barrier(2), [True, True]

    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        if failing:
            both.wait(30)
            failing.pop()
            raise RuntimeError("planted")
        return batch

    built = Graph("twice", parallelism=2)
    rows = built.source("rows", TableSource(tables(100))).map("fails", fail).key_by("key")
    rows.process("count", count, SCHEMA, lambda c: {"count": c.value("count")}).sink(
        "out", bench.sink
    )
    restored: list[str] = []
    bench.job(built, restarts=1, observe=lambda what, task, n: restored.append(what)).run()
    assert restored.count("restored") == 1
    bench.check(100)


def test_a_region_that_fails_for_ever_ends_the_job(bench: Bench) -> None:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise RuntimeError("planted")

    built = Graph("failing")
    built.source("rows", TableSource(tables(100))).map("fails", fail).sink("out", bench.sink)
    with pytest.raises(UnavailableError, match="RuntimeError"):
        bench.job(built, restarts=2).run()
    assert bench.rows() == []


def test_a_function_that_ends_its_thread_is_an_error_like_any_other(bench: Bench) -> None:
    def leave(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise SystemExit("planted")

    stop, built = Event(), Graph("leaving")
    built.source("rows", TableSource(tables(100))).map("leaves", leave).sink("out", bench.sink)
    deadline = Timer(30, stop.set)
    deadline.start()
    with pytest.raises(UnavailableError, match="leaves/0: SystemExit: planted"):
        bench.job(built, restarts=1).run(stop=stop)
    deadline.cancel()


def test_a_store_that_ends_the_thread_of_persisting_fails_the_checkpoint(
    bench: Bench, tmp_path: Path
) -> None:
    class Leaving(LocalSnapshotStore):
        def put(self, key: str, content: bytes) -> BlobRef:
            if key.startswith("0/"):
                raise SystemExit("planted")
            return super().put(key, content)

    bench.store = Leaving(tmp_path / "snapshots")
    said: list[tuple[str, int]] = []
    stop, built = Event(), graph(bench.sink, rows=2_000)
    deadline = Timer(30, stop.set)
    deadline.start()
    bench.job(built, observe=lambda what, task, n: said.append((what, n))).run(stop=stop)
    deadline.cancel()
    assert ("aborted", 0) in said
    bench.check(2_000)


def test_failures_that_come_now_and_then_never_end_a_job(bench: Bench) -> None:
    """What counts is how often it failed since a checkpoint was decided."""
    committed = [0]
    failures: list[int] = []

    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        # The checkpoint after the last one that was seen may be decided before a failure and seen
        # after it; the one after that has begun since.
        if len(failures) < 3 and committed[-1] >= (failures[-1] + 2 if failures else 1):
            failures.append(committed[-1])
            raise RuntimeError("planted")
        return batch

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.append(checkpoint)

    built = Graph("unlucky")
    rows = built.source("rows", TableSource(tables(15_000), 1)).map("fails", fail).key_by("key")
    rows.process("count", count, SCHEMA, lambda c: {"count": c.value("count")}).sink(
        "out", bench.sink
    )
    bench.job(built, restarts=1, observe=observe).run()
    assert len(failures) == 3
    bench.check(15_000)


def stop_with_savepoint(bench: Bench, what: Graph) -> int:
    """Run until a savepoint is committed; its checkpoint."""
    stop = Event()
    asked: list[int] = []
    taken: list[int] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and not asked:
            asked.append(checkpoint)
            job.ask_savepoint()
        elif what == "committed" and bench.savepoints.completed():
            taken.append(checkpoint)
            stop.set()

    job = bench.job(what, savepoints=bench.savepoints, observe=observe)
    job.run(stop=stop)
    return bench.savepoints.completed()[0]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_goes_on_from_a_savepoint_with_another_parallelism(
    bench: Bench, parallelism: int
) -> None:
    rows = 20_000
    at = stop_with_savepoint(bench, graph(bench.sink, rows=rows))
    restore = Restore(at, bench.savepoints)
    if at != bench.store.completed()[-1]:
        restore = Restore()  # a checkpoint came after it: the sinks are committed to that one
    bench.job(graph(bench.sink, parallelism=parallelism, rows=rows)).run(restore)
    bench.check(rows)


def test_a_job_that_begins_from_anothers_savepoint_counts_on_from_its_number(
    bench: Bench, tmp_path: Path
) -> None:
    """State in another system is told apart by the numbers: a lower one would not be seen."""
    at = stop_with_savepoint(bench, graph(bench.sink, rows=20_000))
    (tmp_path / "other").mkdir()
    other, committed = Bench(tmp_path / "other"), list[int]()

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.append(checkpoint)

    job = other.job(graph(other.sink, rows=20_000), observe=observe)
    job.run(Restore(at, bench.savepoints, go_back=True))
    assert committed[0] > at


def test_an_older_snapshot_needs_consent(bench: Bench) -> None:
    bench.job(graph(bench.sink, rows=6_000)).run()
    completed = bench.store.completed()
    assert len(completed) > 1
    with pytest.raises(ProtocolError, match="The sinks are not committed to"):
        bench.job(graph(bench.sink, rows=6_000)).run(Restore(completed[0]))
    bench.check(6_000)


@pytest.mark.parametrize(("what", "name"), [("blobs", "{}/**/*.arrow"), ("complete", "{}.record")])
def test_a_damaged_snapshot_is_named_and_the_one_before_needs_consent(
    bench: Bench, what: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stop = Event()
    job = bench.job(
        graph(bench.sink, rows=20_000),
        observe=lambda said, task, n: stop.set() if said == "committed" and n >= 2 else None,
    )
    job.run(stop=stop)
    before, last = bench.store.completed()[-2:]
    there = len(bench.rows())
    damaged = min((bench.store.folder / what).rglob(name.format(last)))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptionError, match=f"checkpoint {last} is damaged"):
        bench.job(graph(bench.sink, rows=20_000)).run()
    with pytest.raises((ProtocolError, CorruptionError)):
        bench.job(graph(bench.sink, rows=20_000)).run(Restore(before))
    assert len(bench.rows()) == there
    bench.job(graph(bench.sink, rows=20_000)).run(Restore(before, go_back=True))
    assert f"goes back from checkpoint {last} to {before}, by consent" in caplog.text
    assert {id_ for id_, _ in bench.rows()} == set(range(20_000))
    assert len(bench.rows()) > 20_000, "what was committed since is written again"
    assert bench.prepared() == 0


class _Declining(LocalSnapshotStore):
    """Cannot keep what belongs to one checkpoint."""

    failed = 1

    def put(self, key: str, content: bytes) -> BlobRef:
        if key.startswith(f"{self.failed}/"):
            raise UnavailableError("planted")
        return super().put(key, content)


def test_handles_of_a_failed_checkpoint_join_the_next_decision(
    bench: Bench, tmp_path: Path
) -> None:
    bench.store = _Declining(tmp_path / "snapshots")
    said: list[tuple[str, int]] = []
    decided: dict[int, list[int]] = {}

    def observe(what: str, task: object, n: int) -> None:
        said.append((what, n))
        if what == "record":
            record = json.loads(bench.store.record(n))
            decided[n] = [committable_from_json(c).handle.epoch for c in record["handles"]]

    bench.job(graph(bench.sink, rows=6_000), observe=observe).run()
    assert ("aborted", 1) in said
    following = min(number for number in decided if number > 1)
    assert 1 in decided[following], "what was pre-committed for the failed one"
    bench.check(6_000)


def test_a_region_that_fails_before_the_first_decision_begins_where_the_run_began(
    bench: Bench,
) -> None:
    """Also where that is an older snapshot, by consent: what came after it is written again."""
    bench.job(graph(bench.sink, rows=6_000)).run()
    oldest = bench.store.completed()[0]
    before = len(bench.rows())
    built = graph(bench.sink, rows=6_000)
    process, fails = built.nodes["count"].make, [True]
    assert process is not None

    def failing(context: TaskContext) -> Operator:
        if fails and context.task.subtask == 1:
            fails.clear()
            raise_at = process(context)
            raise_at.on_batch = _raise  # type: ignore[method-assign]
            return raise_at
        return process(context)

    built.nodes["count"].make = failing
    restored: list[str] = []
    bench.job(
        built, settings=Settings(interval=60), observe=lambda what, task, n: restored.append(what)
    ).run(Restore(oldest, go_back=True))
    assert "restored" in restored
    again = Counter(id_ for id_, _ in bench.rows())
    assert len(again) == 6_000
    assert before < again.total() <= 2 * 6_000
    assert set(again.values()) <= {1, 2}


def _raise(port: int, batch: object, emit: object) -> None:
    raise RuntimeError("planted")


class _Keeping(LocalSnapshotStore):
    """Deletes nothing."""

    error: Exception = ProtocolError("planted: not deleted")

    def delete(self, keys: Iterable[str]) -> None:
        raise self.error


class _Remembering(TableSource):
    """Cannot forget."""

    def passed(self, left: Sequence[Split]) -> str:
        return "all"

    def committed(self, end: str) -> None:
        raise DataError("planted: not forgotten")


@pytest.mark.parametrize("error", [_Keeping.error, UnavailableError("planted"), OSError("planted")])
def test_a_sweep_that_fails_is_logged_and_stops_no_job(
    bench: Bench, tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.store = _Keeping(tmp_path / "kept")
    store.error = error
    committed: list[int] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.append(checkpoint)

    bench.job(graph(bench.sink, rows=2_000), observe=observe).run()
    told = [
        record.getMessage() for record in caplog.records if "could not be deleted" in record.message
    ]
    assert len(told) == len(committed)
    for checkpoint, message in zip(committed, told, strict=True):
        assert message.startswith(f"job counting, checkpoint {checkpoint}: ")
        assert "planted" in message
    bench.check(2_000)


def test_a_source_that_cannot_forget_is_logged_and_stops_no_job(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    built = graph(bench.sink, rows=6_000)
    built.nodes["rows"].source = _Remembering(tables(6_000), 20)
    bench.job(built, retain=1).run()
    assert "planted: not forgotten" in caplog.text
    bench.check(6_000)


def test_state_that_no_operator_claims_is_refused_unless_allowed(bench: Bench) -> None:
    bench.job(graph(bench.sink, rows=300)).run()
    changed = Graph("counting", parallelism=2)
    rows = changed.source("rows", TableSource(tables(300)))
    rows.map("other", lambda b: b.select([])).sink("out", bench.sink)
    with pytest.raises(ConfigError, match="count"):
        bench.job(changed).run()
    bench.job(changed).run(Restore(drop_state=True))
    bench.check(300)


def test_snapshots_without_their_register_are_refused(bench: Bench, tmp_path: Path) -> None:
    bench.job(graph(bench.sink, rows=300)).run()
    sink = FakeSink(FakeTarget(tmp_path / "other.db"), "2pc", "append")
    with pytest.raises(RegisterLostError, match="is not there"):
        Job(graph(sink, rows=300), bench.store, sink.register()).run()
    assert sink.register().load("counting") is None, "a register was minted"


@pytest.mark.parametrize("lost", ["the last two epochs", "the last generation", "all", "its id"])
def test_snapshots_tell_a_register_that_went_back(bench: Bench, lost: str) -> None:
    """Each snapshot notes what was decided before it: what the sinks committed is not done again."""
    register = MemoryRegister()
    for _ in range(4):  # each run decides its last checkpoint
        Job(graph(bench.sink, rows=300), bench.store, register).run()
    stored = register.load("counting")
    assert stored is not None
    state = stored.state
    assert state.frontier is not None
    assert state.frontier >= 2
    older = {
        "the last two epochs": replace(state, frontier=state.frontier - 2),
        "the last generation": replace(state, generation=1),
        "all": None,
        "its id": replace(state, register="0" * 16),
    }[lost]
    if older is None:
        register.retire("counting")
    else:
        register.compare_and_set("counting", stored.version, older)
    records = bench.store.completed()
    for _ in range(2):
        with pytest.raises(RegisterLostError):
            Job(graph(bench.sink, rows=300), bench.store, register).run()
    found = register.load("counting")
    assert (None if found is None else found.state) == older
    assert bench.store.completed() == records
    bench.check(300)


def test_a_graph_with_loops_is_refused_by_drain(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="loops"):
        bench.job(collatz(bench), "drain").run()


def collatz(bench: Bench) -> Graph:
    """Each number goes round until it is 1; out come (start, how often)."""

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        n = batch["n"]
        half = pc.divide(n, 2)
        odd = pc.equal(pc.subtract(n, pc.multiply(half, 2)), 1)
        grown = pc.if_else(odd, pc.add(pc.multiply(n, 3), 1), half)
        return pa.record_batch(
            [
                batch["id"],
                pc.if_else(pc.equal(n, 1), n, grown),
                pc.add(batch["steps"], pc.if_else(pc.equal(n, 1), 0, 1)),
            ],
            names=["id", "n", "steps"],
        )

    def body(head):  # type: ignore[no-untyped-def]
        stepped = head.key_by("id").map("step", step)
        again = stepped.filter("again", lambda b: pc.greater(b["n"], 1))
        leave = stepped.filter("leave", lambda b: pc.equal(b["n"], 1))
        return again, leave

    starts = list(range(1, 200))
    table = pa.table({"id": starts, "n": starts, "steps": [0] * len(starts)})
    built = Graph("collatz", parallelism=2)
    (
        built.source("starts", TableSource([table], 10))
        .iterate("loop", body)
        .map(
            "text",
            lambda b: pa.record_batch([b["id"], b["steps"].cast(pa.string())], schema=SCHEMA),
        )
        .sink("out", bench.sink)
    )
    return built


def steps(n: int) -> int:
    taken = 0
    while n > 1:
        n, taken = (3 * n + 1 if n % 2 else n // 2), taken + 1
    return taken


@pytest.mark.parametrize("way", ["aligned", "unaligned", "stop_the_world"])
def test_a_loop_yields_each_record_once(bench: Bench, way: str) -> None:
    bench.job(collatz(bench), way, settings=Settings(interval=0.005)).run()
    assert sorted(bench.rows()) == [(n, str(steps(n))) for n in range(1, 200)]


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Tasks look for work by themselves now and then: here later than when the job is stopped."""
    monkeypatch.setattr(region, "IDLE_SECONDS", 60)
    stop = Event()
    timer = Timer(30, stop.set)
    timer.start()
    yield stop
    timer.cancel()


@pytest.mark.parametrize("way", STRATEGIES)
def test_whoever_makes_work_for_a_task_wakes_it(bench: Bench, way: str, deadline: Event) -> None:
    bench.job(graph(bench.sink, rows=2_000), way, settings=Settings(interval=1e6)).run(
        None, deadline
    )
    bench.check(2_000)


@pytest.mark.parametrize("way", ["aligned", "unaligned", "stop_the_world"])
def test_the_last_to_leave_a_loop_wakes_its_heads(bench: Bench, way: str, deadline: Event) -> None:
    bench.job(collatz(bench), way, settings=Settings(interval=1e6)).run(None, deadline)
    assert len(bench.rows()) == 199


def as_text(name: str):  # type: ignore[no-untyped-def]
    return lambda b: pa.record_batch([b["key"], b[name].cast(pa.string())], schema=SCHEMA)


@pytest.mark.parametrize("slide", [None, 5])
def test_windows_hold_what_their_time_says(bench: Bench, slide: int | None) -> None:
    times = [(n * 7) % 10 + n // 10 * 10 for n in range(200)]  # out of order by up to 10
    table = pa.table({"key": [n % 3 for n in range(200)], "ts": times})
    built = Graph("windows", parallelism=2)
    (
        built.source("rows", TableSource([table], 7), event_time=EventTime("ts", 10), parallelism=1)
        .key_by("key")
        .window("windows", "ts", 10, "count", slide=slide)
        .map(
            "text",
            lambda b: pa.record_batch(
                [
                    b["key"],
                    pc.binary_join_element_wise(
                        b["window_start"].cast(pa.string()), b["count"].cast(pa.string()), ":"
                    ),
                ],
                schema=SCHEMA,
            ),
        )
        .sink("out", bench.sink)
    )
    bench.job(built).run()
    due: Counter[tuple[int, int]] = Counter()
    for n, time in enumerate(times):
        for start in range(-10, 210, slide or 10):
            if start <= time < start + 10:
                due[n % 3, start] += 1
    assert sorted(bench.rows()) == sorted((k, f"{s}:{c}") for (k, s), c in due.items())


class Endless(TableSource):
    """One that never says that it is through."""

    def open(self, split: Split) -> TableReader:
        return EndlessReader(self.tables[int(split.source)], split, self.batch_rows)


class EndlessReader(TableReader):
    finished = False

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        return None if super().finished else super().read(timeout_seconds)


def test_event_time_goes_on_where_a_task_of_the_source_has_nothing_to_read(bench: Bench) -> None:
    table = pa.table({"key": [n % 3 for n in range(26)], "ts": range(26)})
    built = Graph("windows", parallelism=2)
    source = Endless([table], 7)
    (
        built.source("rows", source, event_time=EventTime("ts"), bounded=False)
        .key_by("key")
        .window("windows", "ts", 10, "count")
        .map("text", as_text("count"))
        .sink("out", bench.sink)
    )
    stop = Event()

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and len(bench.rows()) == 6:
            stop.set()

    deadline = Timer(30, stop.set)
    deadline.start()
    bench.job(built, observe=observe).run(stop=stop)
    deadline.cancel()
    assert sorted(bench.rows()) == [(0, "3"), (0, "4"), (1, "3"), (1, "4"), (2, "3"), (2, "3")]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_batch_that_a_function_leaves_without_rows_is_nothing_to_fold(
    bench: Bench, parallelism: int
) -> None:
    built = Graph("empty", parallelism=parallelism)
    rows = built.source("rows", TableSource(tables(100), 10))
    late = rows.map("late", lambda batch: batch.filter(pc.greater_equal(batch["id"], 50)))
    summed = (
        late.key_by("id")
        .reduce("sum", "sum", "key")
        .map(
            "text", lambda b: pa.record_batch([b["id"], b["sum"].cast(pa.string())], schema=SCHEMA)
        )
    )
    summed.sink("out", bench.sink)
    bench.job(built).run()
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(50, 100))


def test_a_join_yields_each_pair_once(bench: Bench) -> None:
    left = pa.table({"key": [n % 10 for n in range(100)], "l": list(range(100))})
    right = pa.table({"key": [n % 20 for n in range(60)], "r": list(range(60))})
    built = Graph("join", parallelism=2)
    lefts = built.source("left", TableSource([left], 9)).key_by("key")
    rights = built.source("right", TableSource([right], 9)).key_by("key")
    lefts.join(
        "join", rights, lambda a, b: {"id": a["key"], "value": f"{a['l']}-{b['r']}"}, SCHEMA
    ).sink("out", bench.sink)
    bench.job(built).run()
    due = [(n % 10, f"{n}-{r}") for n in range(100) for r in range(60) if n % 10 == r % 20]
    assert sorted(bench.rows()) == sorted(due)


def test_a_broadcast_reaches_every_task_and_a_rebalanced_batch_one(bench: Bench) -> None:
    def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": row["id"], "value": text} for text in ("a", "b")] if row["id"] % 2 else []

    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    built = Graph("spread", parallelism=2)
    rows = built.source("rows", TableSource(tables(100), 9)).flat_map_rows("twice", twice, SCHEMA)
    each = rows.rebalance().map("one", same, parallelism=3).broadcast().map("all", same)
    each.sink("out", bench.sink)
    bench.job(built).run()
    due = [(n, text) for n in range(1, 100, 2) for text in "ab"]
    assert sorted(bench.rows()) == sorted(due * 3)  # as many tasks as before, where none is said


def test_a_parallelism_of_none_at_all_is_refused(bench: Bench) -> None:
    with pytest.raises(OptionError, match="parallelism 0"):
        Graph("idle").source("rows", TableSource(tables(1)), parallelism=0)


@pytest.mark.parametrize("id_", ["", "two words", "a/b", "x" * 101])
def test_an_id_that_names_no_blob_is_refused_before_it_keeps_anything(id_: str) -> None:
    with pytest.raises(OptionError, match="operator id"):
        Graph("named").source(id_, TableSource(tables(1)))


@pytest.mark.parametrize(("tasks", "groups"), [(1, 32_769), (1, 0), (9, 8), (0, 8)])
def test_a_graph_with_key_groups_that_cannot_be_is_refused(tasks: int, groups: int) -> None:
    with pytest.raises(ConfigError, match=f"{tasks} does not fit {groups} key groups"):
        Graph("wide", parallelism=tasks, max_parallelism=groups)


def test_a_graph_has_as_many_key_groups_as_there_may_be() -> None:
    assert Graph("wide", max_parallelism=32_768).max_parallelism == 32_768


def test_reduce_folds_batches(bench: Bench) -> None:
    built = Graph("reduce", parallelism=2)
    rows = built.source("rows", TableSource(tables(1_000), 50)).key_by("key")
    rows.reduce("sum", "sum", "id").map("text", as_text("sum")).sink("out", bench.sink)
    bench.job(built).run()
    final = {key: max(int(v) for k, v in bench.rows() if k == key) for key in range(7)}
    assert final == {key: sum(range(key, 1_000, 7)) for key in range(7)}


def test_the_plan_is_told_as_text(bench: Bench) -> None:
    told = describe(collatz(bench))
    assert "loop [iteration head x2]" in told
    assert "<- loop-tail forward (back-edge)" in told


def test_the_plan_is_told_as_a_picture(bench: Bench) -> None:
    told = mermaid(collatz(bench))
    assert told.startswith("flowchart LR\n")
    assert told.count("-.->") == 1
    assert told.count("-->") == len(collatz(bench).nodes) - 1


def test_a_failure_while_a_run_is_stopped_is_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, ending, end = Event(), Event(), Region.stop

    def ends(region: Region) -> None:
        ending.set()
        end(region)

    monkeypatch.setattr(Region, "stop", ends)

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        stop.set()
        assert ending.wait(20)
        raise OSError("planted")

    built = Graph("stopped")
    built.source("rows", TableSource(tables(10))).map("fails", fails).sink("out", bench.sink)
    bench.job(built, restarts=0).run(stop=stop)
    assert "job stopped: fails/0 failed while the run was ending" in caplog.text
    assert "planted" in caplog.text
