"""What failed checkpoints leave behind in memory is bounded, whatever their number."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

from abs_core.barriers.alignment import STRATEGIES
from abs_core.barriers.elements import Barrier, Copy, TaskId
from abs_embedded import Settings
from abs_embedded.background import Background
from abs_embedded.channel import Channel
from abs_embedded.operators import Stateless
from abs_embedded.state.contracts import Snapshot, StateHandle
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.operator_state import OperatorState
from abs_embedded.task import Command, Input, Task
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import graph

FAILED = 500


class NoState:
    """A context that counts its copies."""

    def __init__(self) -> None:
        self.lists = OperatorState()
        self.held: set[int] = set()

    def copy(self, checkpoint: int) -> None:
        self.held.add(checkpoint)

    def decided(self, checkpoint: int) -> None:
        self.held = {number for number in self.held if number > checkpoint}

    def aborted(self, checkpoint: int) -> None:
        self.held.discard(checkpoint)

    def close(self) -> None:
        pass


def copy(checkpoint: int) -> Copy:
    return Copy(TaskId("op", 0), 0, checkpoint, None, (), ())


def test_copies_of_failed_checkpoints_do_not_wait_to_be_persisted() -> None:
    """The store hangs, and one checkpoint after the other fails."""
    begun, go_on = Event(), Event()
    persisted: list[int] = []
    dropped: list[int] = []

    def persist(copy: Copy) -> None:
        begun.set()
        assert go_on.wait(300)
        persisted.append(copy.checkpoint)

    queue = Background(persist, lambda copy: dropped.append(copy.checkpoint))
    try:
        queue.submit(copy(0))
        assert begun.wait(60)
        most = 0
        for checkpoint in range(1, FAILED + 1):
            queue.submit(copy(checkpoint))
            most = max(most, len(queue))
            queue.drop(checkpoint)
        assert most == 1
        assert dropped == list(range(1, FAILED + 1))
        queue.submit(copy(FAILED + 1))
        assert not queue.rest(0.01)
        go_on.set()
        assert queue.rest(60)
        assert persisted == [0, FAILED + 1]
    finally:
        go_on.set()
        queue.close()


def test_a_task_keeps_nothing_of_checkpoints_that_failed() -> None:
    """Unaligned, one input's barriers stay away: copies wait for their logs, and fail meanwhile."""
    left, right, state = Channel(10), Channel(10), NoState()
    done: list[Copy] = []
    task = Task(
        TaskId("op", 0),
        Stateless(lambda batch: ()),
        state,
        [Input(left, 0), Input(right, 0)],
        [],
        STRATEGIES["unaligned"],
        lambda copy, now: done.append(copy),
    )

    def steps() -> None:
        while task.step(lambda ready: ready[0]):
            pass

    rows = tuple(range(50))
    for checkpoint in range(FAILED):
        left.put(Barrier(checkpoint))
        right.put(rows)
        steps()
        assert any(task._logs.values())
        task.tell(Command.ABORTED, checkpoint)
        right.put(rows)
        steps()
        assert not state.held
        assert not any(task._logs.values()), "rows are held for a snapshot that will never be"
    for checkpoint in range(FAILED):
        right.put(Barrier(checkpoint))
    steps()
    assert all(each.failed and not each.log for each in done)
    assert len(done) == FAILED
    assert not [*task._logs, *task._copies, *task._failed]


def test_checkpoints_whose_barriers_never_come_are_forgotten_with_the_next_copy() -> None:
    state, only = NoState(), Channel(10)
    operator = Stateless(lambda batch: ())
    task = Task(
        TaskId("op", 0),
        operator,
        state,
        [Input(only, 0)],
        [],
        STRATEGIES["aligned"],
        lambda c, now: None,
    )
    for checkpoint in range(FAILED):
        task.tell(Command.ABORTED, checkpoint)
    only.put(Barrier(FAILED))
    while task.step(lambda ready: ready[0]):
        pass
    assert state.held == {FAILED}
    assert not task._failed


def test_a_job_holds_no_copies_of_failed_checkpoints_while_its_store_hangs(tmp_path: Path) -> None:
    bench, stop, go_on = Bench(tmp_path), Event(), Event()
    held, most, failed = set[object](), [0], list[int]()

    class Hanging:
        def __init__(self, copy: Snapshot) -> None:
            self._copy = copy
            held.add(self)

        def persist(self) -> StateHandle:
            assert go_on.wait(60)
            return self._copy.persist()

        def close(self) -> None:
            held.discard(self)
            self._copy.close()

    class Watched(HeapBackend):
        def snapshot(self, checkpoint: int) -> Any:
            copy = Hanging(super().snapshot(checkpoint))
            most[0] = max(most[0], len(held))
            return copy

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "aborted":
            failed.append(checkpoint)
            if len(failed) == 12:
                stop.set()
                go_on.set()

    often = Settings(interval=0.01, timeout=0.01)
    bench.job(graph(bench.sink), backend=Watched, settings=often, observe=observe).run(stop=stop)
    assert len(failed) >= 12
    assert most[0] <= 6, "of two tasks: those under way, and those that are told of a failure next"
    assert not held


def test_an_observer_that_fails_beside_the_tasks_fails_one_checkpoint(tmp_path: Path) -> None:
    """The thread that makes parts durable would be gone else, and no checkpoint ever complete."""
    bench, failed = Bench(tmp_path), list[int]()

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "persisted" and not failed:
            failed.append(checkpoint)
            raise ValueError("planted")

    running = Thread(target=bench.job(graph(bench.sink), observe=observe).run, daemon=True)
    running.start()
    running.join(60)
    assert not running.is_alive()
    assert failed
    bench.check(6_000)
