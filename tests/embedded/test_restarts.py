"""What fails while a job runs: a region is restored, a checkpoint is given up, or the job ends."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from threading import Barrier, Event, Timer
from typing import Any

import pyarrow as pa
import pytest

from abs_core.codec import committable_from_json
from abs_core.errors import (
    UnavailableError,
)
from abs_embedded import (
    Graph,
    Restore,
    Settings,
)
from abs_embedded.context import TaskContext
from abs_embedded.operators import Operator
from abs_embedded.region import Region
from abs_embedded.state.contracts import BlobRef, Snapshot, StateHandle
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench, as_text
from tests.embedded.jobs.counting import count, expected, graph, tables


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
            too_early.append(closed.wait(0.2))
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
    pause = Event()

    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        if len(failures) < 3:
            pause.wait(0.001)  # the rows must last until the third failure
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
            process(context)  # declares its states
            return _Raises()
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


class _Raises(Operator):
    def on_batch(self, port: int, batch: object, emit: object) -> None:
        raise RuntimeError("planted")


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
        assert ending.wait(60)
        raise OSError("planted")

    built = Graph("stopped")
    built.source("rows", TableSource(tables(10))).map("fails", fails).sink("out", bench.sink)
    bench.job(built, restarts=0).run(stop=stop)
    assert "job stopped: fails/0 failed while the run was ending" in caplog.text
    assert "planted" in caplog.text
