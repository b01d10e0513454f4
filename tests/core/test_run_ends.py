"""A run that is given up ends what it has open: what is decided is committed, the rest aborted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from abs_core.certificate import MemoryCertificates
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import FencedError
from abs_core.events import Ended, Event
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import QUICK, Run
from tests.kit.fake_harness import FakeHarness

LEFT, RIGHT, MORE = rows(0, 2), rows(10, 2), rows(20, 2)


@pytest.fixture(params=["2pc", "wal", "idempotent"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    write = "upsert" if request.param == "idempotent" else "append"
    case = Case(FakeHarness(request.param, write))
    yield case
    case.close()


def test_what_was_pre_committed_is_aborted_and_the_next_run_writes_it(case: Case) -> None:
    run = case.run()
    run.epoch(0, LEFT)
    run.task(1, 0, RIGHT)
    assert run.coordinator.end()
    case.is_clean(when="after the run was ended")
    state = run.state()
    assert (state.frontier, state.open) == (0, ())
    case.run().epoch(1, RIGHT, MORE)
    case.finished(LEFT, RIGHT, MORE, when="after the next run")


def test_what_is_decided_is_committed_first(case: Case) -> None:
    halted = case.run(cut=Cut("commit"))
    if halted.co_commits or not case.hides:
        pytest.skip("decided and committed are one there, or rows are visible before")
    raises(Halted, lambda: halted.epoch(0, LEFT))
    halted.task(1, 0, RIGHT)
    ending = Coordinator(halted.who, halted.store, halted.committer, patience=QUICK)
    assert ending.end()
    case.finished(LEFT, when="after a run with a decision was ended")


def test_tasks_and_commits_that_come_later_are_fenced_and_swept(case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT)
    late = run.attempt(0, 1)
    assert run.coordinator.end()
    raises(FencedError, lambda: run.begin(0))
    raises(FencedError, lambda: run.commit(0, shares))
    try:
        late.write(*RIGHT).pre_commit()
    except FencedError:
        late.writer.abort()  # protocol idempotent writes under the register's own eyes
    run.coordinator.sweep_ended()
    case.is_clean(when="after a late task was swept")
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after the next run")


def test_a_run_that_was_superseded_ends_nothing_of_its_successor(case: Case) -> None:
    old, new = case.run(), case.run()
    old.begin(0)
    shares = new.tasks(0, LEFT)
    generation = new.state().generation
    old.coordinator.end()
    assert new.state().generation == generation
    new.coordinator.commit(Report(0, shares, None))
    case.finished(LEFT, when="after a superseded run wanted to end")


def test_what_a_superseded_run_pre_commits_later_it_aborts_itself(case: Case) -> None:
    """As a stopped driver does that goes on: its successor may have no further epoch to sweep with."""
    old, new = case.run(), case.run()
    old.begin(0)
    late = [old.attempt(0, partition) for partition in (0, 1)]
    new.epoch(0, LEFT)
    for attempt in late:
        try:
            attempt.write(*RIGHT).pre_commit()
        except FencedError:
            attempt.writer.abort()  # protocol idempotent writes under the register's own eyes
    assert old.coordinator.end()
    case.is_clean(when="after a superseded run has ended")
    case.finished(LEFT, when="after a superseded run has ended")


@pytest.mark.parametrize("finished", [0, 2])
def test_a_run_that_was_superseded_before_its_first_decision_is_told_so(
    case: Case, finished: int
) -> None:
    """Not that its register is lost, which its successor's certificate would make of it."""
    certificates = MemoryCertificates()
    if finished:
        case.run(certificates=certificates).epoch(0, LEFT)
    old = case.run(certificates=certificates)
    shares = old.tasks(1 if finished else 0, RIGHT)
    new = case.run(certificates=certificates)
    new.epoch(1 if finished else 0, RIGHT)
    new.epoch(2 if finished else 1, MORE)
    certificate = certificates.read()
    raises(FencedError, lambda: old.commit(1 if finished else 0, shares))
    assert certificates.read() == certificate, "it is its successor's"
    case.finished(*([LEFT] if finished else []), RIGHT, MORE, when="after the old run failed")


def test_it_is_told_and_done_once(case: Case) -> None:
    run: Run = case.run()
    run.begin(0)
    events: list[Event] = []
    ending = Coordinator(run.who, run.store, run.committer, patience=QUICK, observe=events.append)
    assert ending.end()
    assert ending.end(), "its reply may have been lost: what is left is swept again"
    assert run.state().generation == 2
    assert {type(event) for event in events} == {Ended}
    assert {event.job for event in events} == {JOB}


def test_a_run_that_has_not_started_is_not_ended(case: Case) -> None:
    assert not case.run().coordinator.end()
    case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after a run that never started was ended")
