"""A leader that stands still at any of its calls while a newer run works: it harms nothing of it."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from abs_core.coordinator import Coordinator
from abs_core.errors import AbsError, CorruptionError, FencedError
from abs_embedded import Settings
from abs_embedded.recovery import StoreKeeper
from abs_embedded.snapshot import read_record
from abs_embedded.state import retention
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import graph
from tests.embedded.test_a_newer_run import MANY, run_on
from tests.kit.stopped import Pause, Stopped, StoppedSink
from tests.planted import Bug, Plant, planted
from tests.sample import members

pytestmark = pytest.mark.long

POSITIONS = 40
"""Calls of a start and of some checkpoints."""
BEGUN = 10
"""A run that is stopped before these calls has not begun: it takes the job over when it goes on."""
RETAINED = 4


def stop_at(bench: Bench, at: int) -> None:
    """Stop a leader there, and look at what its successor keeps.

    Raises:
        AssertionError: something of it is gone, or the job's rows are not there once.
    """
    run_on(bench, lambda count: count > 2, retain=RETAINED)
    pause, kept = Pause(), dict[int, bytes]()

    def meanwhile() -> None:
        run_on(bench, lambda count: count > RETAINED, retain=RETAINED)
        newest = bench.store.completed()[-RETAINED:]
        kept.update((number, bench.store.record(number)) for number in newest)

    pause.at, pause.meanwhile = at, meanwhile
    sink: Any = StoppedSink(bench.sink, pause)
    old = bench.job(graph(sink, rows=MANY), retain=1, settings=Settings(interval=0.004))
    old.store, old.register = Stopped(bench.store, pause), Stopped(bench.sink.register(), pause)  # type: ignore[assignment]
    ended = list[BaseException]()

    def run() -> None:
        try:
            old.run()
        except AbsError as error:
            ended.append(error)

    running = Thread(target=run, daemon=True)
    running.start()
    running.join(120)
    assert not running.is_alive(), f"stopped at call {at}, it does not end"
    assert kept, f"it makes fewer than {at} calls"
    # Without an error it has taken the job over, or was stopped when all of it was done.
    assert all(isinstance(error, FencedError) for error in ended), f"stopped at {at}: {ended}"
    for number, content in kept.items() if ended or at >= BEGUN else ():
        assert _is_whole(bench, number, content), f"checkpoint {number} is gone, by call {at}"
    bench.job(graph(bench.sink, rows=MANY)).run()
    bench.check(MANY)


def _is_whole(bench: Bench, number: int, record: bytes) -> bool:
    try:
        for ref in read_record(record).blobs:
            bench.store.get(ref)
        return bench.store.record(number) == record
    except CorruptionError:
        return False


@pytest.mark.parametrize("at", members(range(POSITIONS), 4, "a leader that stands still"))
def test_a_leader_that_is_stopped_at_any_call_deletes_nothing_of_its_successor(
    at: int, bench: Bench
) -> None:
    stop_at(bench, at)


def _looks_at_no_generation(plant: Plant) -> None:
    plant(StoreKeeper, "_check_newest", lambda *_: None)


def _sweeps_whatever_is_not_named(plant: Plant) -> None:
    plant(retention, "_number", lambda key: -1)


def _takes_what_a_newer_run_deleted_for_damage(plant: Plant) -> None:
    plant(Coordinator, "check_leads", lambda _: None)


DELETES = BEGUN + 15
"""About this call a checkpoint is decided, and others are deleted."""
BUGS: dict[Bug, int] = {
    _looks_at_no_generation: DELETES,
    _sweeps_whatever_is_not_named: DELETES,
    _takes_what_a_newer_run_deleted_for_damage: BEGUN,
}
"""The call at which the search begins; it goes on to the nearest ones."""


RARE = _sweeps_whatever_is_not_named  # found by one call in twenty


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[pytest.mark.campaign] * (bug is RARE)) for bug in BUGS],
    ids=lambda bug: bug.__name__,
)
def test_it_finds_a_leader_that(bug: Bug, tmp_path: Path) -> None:
    with planted(bug):
        for at in sorted(range(BEGUN, POSITIONS), key=lambda at: abs(at - BUGS[bug])):
            stop_at(Bench(tmp_path / str(at)), at)
