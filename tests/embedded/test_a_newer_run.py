"""A run that another one has taken over from, and does not know it yet, does the other no harm."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from abs_core.errors import FencedError
from abs_embedded import Restore, Settings
from abs_embedded.recovery import StoreKeeper
from abs_embedded.state.contracts import StateHandle
from abs_embedded.state.heap import HeapBackend, HeapSnapshot
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import graph

MANY = 60_000


def run_on(bench: Bench, enough: Callable[[int], bool], **more: Any) -> int:
    """Run until enough was committed; the last checkpoint that was."""
    stop, committed = Event(), list[int]()

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.append(checkpoint)
            if enough(len(committed)):
                stop.set()

    bench.job(graph(bench.sink, rows=MANY), observe=observe, **more).run(stop=stop)
    return committed[-1]


def paused(bench: Bench) -> tuple[StoreKeeper, Callable[[], object]]:
    """A run that was paused as it had taken the job over; what it does when it wakes."""
    keeper = bench.job(graph(bench.sink, rows=MANY))._keeper(Restore())
    keeper.coordinator.begin(0, gaps_allowed=True)
    state = keeper.coordinator.roll_forward()
    return keeper, lambda: keeper.restored(state, Restore())


def test_a_start_that_was_paused_deletes_no_record_of_the_run_that_took_over(bench: Bench) -> None:
    run_on(bench, lambda count: count > 2)
    _, wake = paused(bench)
    last = run_on(bench, lambda count: True)
    before = bench.store.completed()
    with pytest.raises(FencedError, match=f"Checkpoint {last} has generation 3"):
        wake()
    assert bench.store.completed() == before
    bench.job(graph(bench.sink, rows=MANY)).run()
    bench.check(MANY)


def test_the_retention_of_a_run_that_was_paused_deletes_nothing_of_the_run_that_took_over(
    bench: Bench,
) -> None:
    """It keeps one checkpoint, the newer run three."""
    run_on(bench, lambda count: count > 2)
    keeper, wake = paused(bench)
    wake()
    keeper.keep = 1
    run_on(bench, lambda count: count > 4)
    before = bench.store.completed(), bench.store.blobs()
    keeper.retain(99)
    assert (bench.store.completed(), bench.store.blobs()) == before


def test_a_record_that_was_not_decided_is_deleted_only_once_its_number_cannot_come_again(
    bench: Bench,
) -> None:
    """A delete may arrive late. A run that left no trace else would have given its number again."""
    last = run_on(bench, lambda count: count > 2)
    record = bench.store.record(last)
    bench.store.complete(last + 1, record, [])  # its process died before the decision
    _, wake = paused(bench)
    wake()
    assert last + 1 in bench.store.completed(), "another start would count on from the one before"
    assert run_on(bench, lambda count: True) > last + 1
    assert last + 1 not in bench.store.completed()


class FencedSnapshot(HeapSnapshot):
    def persist(self) -> StateHandle:
        raise FencedError("planted: a newer run is at work.", remedy="none.")


class FencedBackend(HeapBackend):
    """As state in another system where a newer run has raised the fence."""

    def snapshot(self, checkpoint: int) -> HeapSnapshot:
        self._pending[checkpoint] = FencedSnapshot(self, checkpoint, None)
        return self._pending[checkpoint]


def test_a_run_whose_state_is_fenced_ends(bench: Bench) -> None:
    """It would go on for ever else: a checkpoint that is never complete is never fenced."""
    settings, failed = Settings(interval=0.02), list[BaseException]()
    job = bench.job(graph(bench.sink, rows=MANY), backend=FencedBackend, settings=settings)

    def run() -> None:
        try:
            job.run()
        except FencedError as error:
            failed.append(error)

    running = Thread(target=run, daemon=True)
    running.start()
    running.join(60)
    assert not running.is_alive()
    assert "planted" in str(failed[0])
    assert not bench.rows()
