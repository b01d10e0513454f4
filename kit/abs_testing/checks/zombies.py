"""Races: runs, coordinators and tasks that should be dead and are not."""

from __future__ import annotations

from abs_core.errors import AbandonedError, FencedError, ProtocolError, TargetError
from abs_core.model import HandleName
from abs_testing.case import JOB, LEFT, RIGHT, Case, raises, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Attempt, Run
from abs_testing.rules import hiding, hiding_two_step, only, two_step, upserting


def the_loser_of_a_retried_task_changes_nothing(case: Case) -> None:
    run = case.run()
    loser = run.attempt(0, 0).write(*LEFT)
    winner = run.attempt(0, 0).write(*LEFT)
    loser.pre_commit()
    run.commit(0, [winner.pre_commit(), run.task(0, 1, RIGHT)])
    case.finished(LEFT, RIGHT, when="after a task of two attempts that both pre-committed")


def a_loser_that_pre_commits_after_the_end_changes_nothing(case: Case) -> None:
    run = case.run()
    loser = run.attempt(0, 0).write(*LEFT)
    run.epoch(0, LEFT)
    _late(loser)
    case.holds(LEFT, when="after a late loser")
    run.epoch(1, RIGHT)
    case.finished(LEFT, RIGHT, when="after the epoch that follows a late loser")


def a_superseded_run_cannot_begin(case: Case) -> None:
    old = case.run()
    old.epoch(0, LEFT)
    case.run().epoch(1, RIGHT)
    raises(FencedError, lambda: old.begin(2))
    raises(FencedError, lambda: old.begin(1))
    case.finished(LEFT, RIGHT, when="after a late task of a superseded run began")


def a_superseded_coordinator_cannot_decide(case: Case) -> None:
    old = case.run()
    shares = old.tasks(0, LEFT, RIGHT)
    new = case.run()
    fresh = new.tasks(0, RIGHT, LEFT)
    raises(FencedError, lambda: old.commit(0, shares))
    case.hides_all("after a zombie's commit was refused")
    new.commit(0, fresh)
    raises(FencedError, lambda: old.commit(0, shares))
    case.finished(LEFT, RIGHT, when="after two runs of one epoch")


def a_superseded_coordinator_cannot_abort(case: Case) -> None:
    old = case.run()
    old.tasks(0, LEFT)
    new = case.run()
    shares = new.tasks(0, LEFT)
    raises(FencedError, lambda: old.abort(0))
    new.commit(0, shares)
    raises(FencedError, lambda: old.abort(0))
    case.finished(LEFT, when="after a zombie's abort")


def a_zombie_task_changes_nothing(case: Case) -> None:
    zombie = case.run().attempt(0, 0).write(*LEFT)
    new = case.run()
    new.epoch(0, LEFT)
    _late(zombie)
    case.holds(LEFT, when="after a zombie pre-committed after its epoch was finished by another")
    new.epoch(1, RIGHT)
    case.finished(LEFT, RIGHT, when="after the sweep that follows a zombie")


def a_zombie_task_that_writes_after_the_sweep_changes_nothing(case: Case) -> None:
    zombie = case.run().attempt(0, 0)
    case.run().begin(0)
    _late(zombie, *LEFT)
    case.hides_all("after a zombie wrote and pre-committed behind the sweep")
    case.replayed(LEFT, RIGHT, when="after a zombie wrote behind the sweep, and one more run")


@only(hiding)
def a_start_sweeps_what_earlier_runs_left(case: Case) -> None:
    case.run().tasks(0, LEFT, RIGHT)
    case.run().tasks(0, LEFT, RIGHT)
    last = case.run()
    state, _ = last.begin(0)
    doubts = last.committer.in_doubt(JOB)
    left = [doubt.handle for doubt in doubts if doubt.handle.register == state.register]
    assert not left, f"generation {state.generation} did not sweep {left}"
    case.finished(when="after the start of a third run")


@only(hiding)
def a_sweep_that_acts_late_harms_nothing(case: Case) -> None:
    old = case.run()
    old.tasks(0, LEFT)
    slow = case.run()
    # The slow sweeper has read what is in doubt, and is overtaken before it aborts.
    # (Of this register only: jobs of that name may be in doubt elsewhere in the same target.)
    seen, doubts = slow.state(), slow.committer.in_doubt(JOB)
    stale = [doubt.handle for doubt in doubts if doubt.handle.register == seen.register]
    new = case.run()
    shares = new.tasks(0, LEFT, RIGHT)
    slow.committer.abort(stale)
    new.commit(0, shares)
    slow.committer.abort(stale)
    slow.committer.forget(seen)
    case.finished(LEFT, RIGHT, when="after a sweep that acted on an old read")


@only(two_step)
def two_coordinators_may_roll_forward_at_once(case: Case) -> None:
    old = case.halted(Cut("commit"), LEFT, RIGHT)
    decision = old.state().open[0]
    if old.committer.whole:
        part = decision.committables[:1]
        raises(ProtocolError, lambda: old.committer.commit(part))
        case.hides_all("after a commit of a part of the handles, which was refused")
    else:
        old.committer.commit(decision.committables[:1])
    case.run().epoch(0, LEFT, RIGHT)
    # The zombie continues where it was: every handle is committed, its proof deleted.
    old.committer.commit(decision.committables)
    case.finished(LEFT, RIGHT, when="after a commit by a zombie and by its successor")


@only(two_step)
def a_zombie_that_decided_may_finish(case: Case) -> None:
    old = case.run()
    shares = old.tasks(0, LEFT, RIGHT)
    halted = case.run(run=old.who.run, cut=Cut("commit", handles=1))
    raises(Halted, lambda: halted.commit(0, shares))
    case.run().begin(0)
    case.run().epoch(0, LEFT, RIGHT)
    raises(FencedError, lambda: old.commit(0, shares))
    case.finished(LEFT, RIGHT, when="after a zombie went on with what it had decided")


@only(two_step)
def an_abort_after_the_decision_undoes_nothing(case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    halted = case.run(run=run.who.run, cut=Cut("commit", handles=1))
    raises(Halted, lambda: halted.commit(0, shares))
    run.abort(0)
    case.replayed(LEFT, RIGHT, when="after an abort that came after the decision")


def an_abort_after_the_end_undoes_nothing(case: Case) -> None:
    run = case.run()
    run.epoch(0, LEFT, RIGHT)
    run.abort(0)
    case.replayed(LEFT, RIGHT, when="after an abort of a finished epoch")


def an_abandoned_epoch_is_written_by_the_next_run_only(case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    run.abort(0)
    if case.hides:
        case.finished(when="after an epoch was abandoned")
    raises(AbandonedError, lambda: run.begin(0))
    raises(AbandonedError, lambda: run.commit(0, shares))
    case.replayed(LEFT, RIGHT, when="after the next run wrote an abandoned epoch")


def a_task_that_outlives_its_epochs_abort_changes_nothing(case: Case) -> None:
    run = case.run()
    slow = run.attempt(0, 0).write(*LEFT)
    run.abort(0)
    _late(slow)
    # Even if rows are visible before the commit, an abandoned epoch must have none.
    case.holds(when="after a task pre-committed behind the abort of its epoch")
    case.replayed(LEFT, when="after the next run")


@only(hiding_two_step)
def a_decision_in_flight_dies_with_the_abandoned_epoch(case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    stale = run.stored()
    deciding = case.run(run=run.who.run, cut=Cut("commit"))
    run.abort(0)
    raises(AbandonedError, lambda: deciding.commit(0, shares))
    late = run.store.compare_and_set(JOB, stale.version, stale.state)
    assert not isinstance(late, str), "the register took a change against an old version"
    case.finished(when="after an abandon that overtook a decision")


@only(upserting)
def a_late_loser_never_overwrites_a_newer_epoch(case: Case) -> None:
    run = case.run()
    _never_overwrites(case, run.attempt(0, 0), run)


@only(upserting)
def a_zombie_never_overwrites_its_successor(case: Case) -> None:
    _never_overwrites(case, case.run().attempt(0, 0), case.run())


def writers_alive_at_once_never_share_a_handle(case: Case) -> None:
    old, new = case.run(), case.run()
    attempts = [old.attempt(0, 0), old.attempt(0, 0), old.attempt(0, 1)]
    attempts += [new.attempt(0, 0), new.attempt(1, 0)]
    names: list[HandleName] = []
    for number, attempt in enumerate(attempts):
        attempt.write(*rows(100 * number, 1))
        names += _late(attempt)
    assert len(set(names)) == len(names), f"two writers share a handle: {names}"


def _never_overwrites(case: Case, late: Attempt, run: Run) -> None:
    """The late attempt of epoch 0 pre-commits after the run's epoch 1, and changes nothing."""
    late.write(*rows(0, 3, "old"))
    run.epoch(0, rows(0, 3, "old"))
    run.epoch(1, rows(0, 3, "new"))
    _late(late)
    case.holds(rows(0, 3, "new"), when="after an attempt of epoch 0 came after epoch 1")
    run.epoch(2, rows(10, 1))
    case.finished(rows(0, 3, "new"), rows(10, 1), when="after the epoch that follows")


def _late(attempt: Attempt, *more: tuple[int, str]) -> list[HandleName]:
    """Continue as a zombie does. The sink may refuse with a typed error, or ignore it."""
    try:
        wrote = attempt.write(*more).pre_commit()
    except (ProtocolError, TargetError):
        attempt.writer.abort()
        return []
    return [] if wrote.committable is None else [wrote.committable.handle]
