"""A function that hangs ends neither the end of a job, nor a restore, nor the leader's lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, Thread

import pyarrow as pa
import pytest

from abs_core.contracts import Task, Writer
from abs_core.errors import HungError
from abs_core.model import Committable
from abs_core.patience import DEFAULT_PATIENCE
from abs_embedded import Graph, Job, Settings
from abs_embedded.lease import Lease, lead
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget
from abs_testing.fakes.writers import TwoPhaseWriter, UpsertWriter
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench

AFTER = 1.0
ROWS = 200


class Hanging:
    """A function that does not come back, once or always, until it is let go."""

    def __init__(self, *, always: bool) -> None:
        self.let_go, self.hung, self.left = Event(), Event(), Event()
        self._always = always

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._always or not self.hung.is_set():
            self.hung.set()
            assert self.let_go.wait(300)
            self.left.set()
        return batch


@pytest.fixture
def hanging() -> Iterator[Callable[..., Hanging]]:
    made: list[Hanging] = []

    def make(*, always: bool) -> Hanging:
        made.append(Hanging(always=always))
        return made[-1]

    yield make
    for each in made:
        each.let_go.set()


def test_by_default_a_hang_is_ended_and_a_sinks_patience_is_not(bench: Bench) -> None:
    after = bench.job(graph(bench.sink, lambda batch: batch)).hang_after
    assert after is not None
    assert DEFAULT_PATIENCE.to_decide < after <= 900


def graph(sink: FakeSink, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Graph:
    built = Graph("hangs")
    table = pa.table({"id": range(ROWS), "value": ["x"] * ROWS}, schema=SCHEMA)
    built.source("in", TableSource([table], 20)).map("slow", function).sink("out", sink)
    return built


def test_a_pure_function_that_hangs_is_given_up_and_its_region_is_restored(
    bench: Bench, hanging: Callable[..., Hanging]
) -> None:
    slow = hanging(always=False)
    bench.job(graph(bench.sink, slow), hang_after=AFTER).run()
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(ROWS))
    slow.let_go.set()
    assert slow.left.wait(60)
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(ROWS)), "it came back, to no effect"
    assert bench.prepared() == 0


def test_a_function_that_always_hangs_ends_the_job_by_name(
    bench: Bench, hanging: Callable[..., Hanging]
) -> None:
    with pytest.raises(HungError, match=r"slow/0.*not returned for 1 s"):
        bench.job(graph(bench.sink, hanging(always=True)), hang_after=AFTER, restarts=1).run()


def test_a_stop_does_not_wait_for_a_function_that_hangs(
    bench: Bench, hanging: Callable[..., Hanging]
) -> None:
    slow, stop = hanging(always=True), Event()
    job = bench.job(graph(bench.sink, slow), hang_after=AFTER, restarts=1_000)
    running = Thread(target=job.run, kwargs={"stop": stop}, daemon=True)
    running.start()
    assert slow.hung.wait(60)
    stop.set()
    running.join(120)
    assert not running.is_alive()
    assert not slow.left.is_set()


class HangingSink(FakeSink):
    writes = Event()
    let_go = Event()

    def writer(self, task: Task) -> Writer:
        return HangingWriter(self._target, task)


class HangingWriter(TwoPhaseWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        HangingSink.writes.set()
        assert HangingSink.let_go.wait(300)
        super().write(batch)


def test_a_write_of_a_sink_that_hangs_ends_the_run_and_leaves_no_trace_when_it_comes_back(
    bench: Bench,
) -> None:
    """A restore would keep the generation, and with it what the write may still leave behind."""
    sink = HangingSink(bench.target, "2pc", "append")
    restored: list[str] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "restored":
            restored.append(what)

    job = bench.job(graph(sink, lambda batch: batch), hang_after=AFTER, observe=observe)
    try:
        with pytest.raises(HungError, match="out/0"):
            job.run()
        assert not restored
    finally:
        HangingSink.let_go.set()
    bench.job(graph(bench.sink, lambda batch: batch)).run()
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(ROWS))
    assert bench.prepared() == 0


class LateSink(FakeSink):
    """Its first pre-commit hangs until the next one has upserted its rows, and upserts its own then."""

    def __init__(self, target: FakeTarget) -> None:
        super().__init__(target, "idempotent", "upsert")
        self.hangs, self.let_go, self.came_back = Event(), Event(), Event()

    def writer(self, task: Task) -> Writer:
        return LateWriter(self, task)


class LateWriter(UpsertWriter):
    def __init__(self, sink: LateSink, task: Task) -> None:
        super().__init__(sink._target, task)
        self._sink = sink

    def pre_commit(self) -> Committable | None:
        if self._sink.hangs.is_set():
            done = super().pre_commit()
            self._sink.let_go.set()
            assert self._sink.came_back.wait(60)
            return done
        self._sink.hangs.set()
        assert self._sink.let_go.wait(300)
        try:
            return super().pre_commit()
        finally:
            self._sink.came_back.set()


def test_a_sink_that_hangs_while_another_task_fails_ends_the_run(bench: Bench) -> None:
    """What it upserts when it comes back would lie over newer rows, under the same generation."""
    sink, failed = LateSink(bench.target), list[str]()

    def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if sink.hangs.is_set() and not failed:
            failed.append("once")
            raise OSError("planted")
        pause.wait(0.01)
        return batch

    pause, built = Event(), Graph("hangs")
    rows = [(n % 10, f"{n:04}") for n in range(1_000)]
    table = pa.table([pa.array(each) for each in zip(*rows, strict=True)], schema=SCHEMA)
    built.source("in", TableSource([table], 10)).map("fails", fails_once).sink("out", sink)

    def job() -> Job:
        return Job(built, bench.store, settings=Settings(interval=0.3), hang_after=AFTER)

    try:
        with pytest.raises(HungError, match=r"out/0.*while another failed"):
            job().run()
    finally:
        sink.let_go.set()
    assert sink.came_back.wait(60)
    sink.came_back.set()
    job().run()
    assert sorted(bench.rows()) == sorted(dict(rows).items())


def test_a_standby_takes_over_from_a_leader_whose_function_hangs_and_nothing_is_lost_or_doubled(
    bench: Bench, hanging: Callable[..., Hanging]
) -> None:
    slow, given_up = hanging(always=True), Event()
    job = bench.job(graph(bench.sink, slow), hang_after=AFTER, restarts=0)
    lease = Lease(bench.sink.register(), "hangs", 3_600.0, "first")
    with pytest.raises(HungError, match="slow/0"):
        lead(lease, lambda stop: job.run(stop=stop), Event(), lambda: None)
    standby = Lease(bench.sink.register(), "hangs", 3_600.0, "second")
    led, other = list[bool](), bench.job(graph(bench.sink, lambda batch: batch))

    def take_over() -> None:
        led.append(lead(standby, lambda stop: other.run(stop=stop), given_up, lambda: None))

    taking = Thread(target=take_over, daemon=True)
    taking.start()
    taking.join(60)
    given_up.set()
    assert led == [True], "the lease of an hour was not free at once"
    slow.let_go.set()
    assert slow.left.wait(60)
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(ROWS))
    assert bench.prepared() == 0
