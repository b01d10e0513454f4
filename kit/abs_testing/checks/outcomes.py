"""The committer's own calls: the outcome of each handle, and that every call can be repeated."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from abs_core.errors import AbsError, HandleLostError, NotPreparedError, TargetError
from abs_core.model import Committable, HandleName, Outcome
from abs_testing.case import JOB, LEFT, MORE, RIGHT, Case, raises
from abs_testing.cuts import Cut
from abs_testing.engine import Run, committables_of
from abs_testing.harness import Holding
from abs_testing.rules import (
    co_committing,
    hiding,
    hiding_two_step,
    holding,
    only,
    two_step,
)

GONE = {Outcome.ABORTED, Outcome.UNKNOWN}


def calls_without_handles_do_nothing(case: Case) -> None:
    run = case.run()
    run.begin(0)
    assert not run.committer.inspect([]), "inspect of nothing must be empty"
    assert not run.committer.commit([]), "commit of nothing must be empty"
    run.committer.abort([])
    assert not run.committer.in_doubt("nobody"), "a job that never ran has nothing in doubt"


def inspect_answers_for_every_handle(case: Case) -> None:
    run = case.run()
    committables = _written(run)
    inspections = run.committer.inspect(committables)
    assert set(inspections) == {c.handle for c in committables}, (
        "inspect must answer for each handle, no other"
    )
    bad = {str(h): i.outcome for h, i in inspections.items() if i.outcome is not Outcome.PREPARED}
    assert not bad, f"pre-committed handles are not found prepared: {bad}"


@only(two_step)
def commit_answers_for_every_handle(case: Case) -> None:
    run, committables = _decided(case)
    for time in ("first", "second"):
        outcomes = run.committer.commit(committables)
        assert set(outcomes) == {c.handle for c in committables}, f"{time} commit: not every handle"
        bad = {str(h): o for h, o in outcomes.items() if o is not Outcome.COMMITTED}
        assert not bad, f"{time} commit: not committed: {bad}"
    case.holds(LEFT, RIGHT, when="after the same commit, twice")


@only(hiding_two_step)
def a_committed_handle_is_known_as_committed(case: Case) -> None:
    run, committables = _decided(case)
    run.committer.commit(committables)
    outcomes = {i.outcome for i in run.committer.inspect(committables).values()}
    assert outcomes == {Outcome.COMMITTED}, f"committed handles are found {outcomes}"


@only(hiding)
def an_aborted_handle_is_neither_prepared_nor_committed(case: Case) -> None:
    run = case.run()
    committables = _written(run)
    for _ in ("once", "and again"):
        run.committer.abort([c.held_as for c in committables])
    outcomes = {i.outcome for i in run.committer.inspect(committables).values()}
    assert outcomes <= GONE, f"aborted handles are found {outcomes}"
    case.finished(when="after abort of every handle")


@only(hiding)
def a_handle_that_never_was_is_neither_prepared_nor_committed(case: Case) -> None:
    run = case.run()
    attempt = run.attempt(0)
    never = Committable(attempt.task.handle, 1, "sha256:00")
    attempt.writer.abort()
    outcome = run.committer.inspect([never])[never.handle].outcome
    assert outcome in GONE, f"a handle that never was is found {outcome}"
    run.committer.abort([never.handle])
    case.finished(when="after abort of a handle that never was")


@only(hiding_two_step)
def commit_of_an_aborted_handle_is_not_reported_as_done(case: Case) -> None:
    run, committables = _decided(case)
    run.committer.abort([committables[0].held_as])
    outcomes = run.committer.commit(committables)
    lost = outcomes.get(committables[0].handle)
    assert lost in GONE, f"the commit of an aborted handle is reported as {lost}"
    if run.committer.whole:
        assert set(outcomes.values()) <= GONE, f"a part of the handles is committed: {outcomes}"
        case.hides_all("after a commit of handles one of which was aborted")
        return
    for other in committables[1:]:  # none, where the sink composes one handle of all
        assert outcomes[other.handle] is Outcome.COMMITTED, "the other handle must be committed"


@only(hiding_two_step)
def a_lost_handle_of_a_decision_is_never_passed_over(case: Case) -> None:
    run, committables = _decided(case)
    run.committer.abort([committables[0].held_as])  # only an operator would do that
    named = raises(HandleLostError, lambda: case.run().epoch(0, LEFT, RIGHT)).handle
    assert named == str(committables[0].handle), (
        f"the error names {named}, not {committables[0].handle}"
    )
    assert run.state().open, "the decision must stay until each handle is proven committed"


@only(hiding)
def a_handle_lost_before_the_decision_decides_nothing(case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    run.committer.abort([committables_of(shares)[1].held_as])
    raises(NotPreparedError, lambda: run.commit(0, shares))
    case.hides_all("after a commit that found a handle gone")
    case.replayed(LEFT, RIGHT, when="after the next run")


@only(holding)
def a_handle_that_cannot_be_aborted_does_not_stop_the_sweep_of_the_others(case: Case) -> None:
    harness = case.harness
    assert isinstance(harness, Holding)
    run = case.run()

    def in_doubt() -> set[HandleName]:
        return {doubt.handle for doubt in run.committer.in_doubt(JOB)} - before

    # A job of this name on another target of the same system may have something in doubt.
    before: set[HandleName] = set()
    before = in_doubt()
    committables = [c for number in range(3) for c in _written(run)]
    stuck = committables[2]  # neither the first nor the last
    with harness.held(stuck.held_as):
        named = raises(TargetError, lambda: run.committer.abort([c.held_as for c in committables]))
        assert str(stuck.held_as) in str(named), f"the error does not name what is left: {named}"
        assert named.remedy, f"the error does not say what to do about what is left: {named}"
        left = in_doubt()
        assert left <= {stuck.handle, stuck.held_as}, (
            f"one handle cannot be aborted, and {len(left) - 1} others are left with it"
        )
        # The next run continues, and sweeps what comes after.
        case.run().tasks(0, LEFT)
        case.run().epoch(0, LEFT, RIGHT)
        left = in_doubt()
        assert left <= {stuck.handle, stuck.held_as}, f"what is left grows: {len(left)} handles"
        case.holds(LEFT, RIGHT, when="after an epoch beside a handle that cannot be aborted")
    case.run().epoch(1, MORE)
    case.finished(LEFT, RIGHT, MORE, when="after the handle could be aborted again")


@only(two_step)
def abort_of_a_committed_handle_undoes_nothing(case: Case) -> None:
    run, committables = _decided(case)
    run.committer.commit(committables)
    run.committer.abort([c.held_as for c in committables])
    case.replayed(LEFT, RIGHT, when="after abort of committed handles")


@only(hiding_two_step)
def the_proof_of_a_commit_outlives_the_decision(case: Case) -> None:
    run, committables = _decided(case)
    run.committer.commit(committables)
    run.committer.forget(run.state())
    outcomes = set(run.committer.commit(committables).values())
    assert outcomes == {Outcome.COMMITTED}, (
        f"forget deleted the proof of an open decision: {outcomes}"
    )
    case.replayed(LEFT, RIGHT, when="after forget with an open decision")


@only(hiding_two_step)
def the_proof_of_a_commit_outlives_the_run_that_decided(case: Case) -> None:
    run, committables = _decided(case)
    run.committer.commit(committables)
    successor = case.run()
    successor.begin(1)  # raises the generation; the decision is still open
    assert successor.state().open, "a start must not drop a decision"
    successor.committer.forget(successor.state())
    outcomes = set(successor.committer.commit(committables).values())
    assert outcomes == {Outcome.COMMITTED}, (
        f"forget deleted the proof of an earlier run's open decision: {outcomes}"
    )
    case.replayed(LEFT, RIGHT, when="after forget by the next run, with an open decision")


@only(co_committing)
def co_commit_against_an_old_version_changes_nothing(case: Case) -> None:
    run = case.run()
    committables = _written(run)
    stale = run.stored()
    # The state stays, so that nothing is swept; its version is another one.
    run.store.compare_and_set(JOB, stale.version, stale.state)
    committer = run.committer
    assert committer.co_commits
    done = committer.co_commit(committables, stale.version, replace(stale.state, frontier=0))
    assert not isinstance(done, str), "a co-commit against an old version was let through"
    case.hides_all("after a co-commit against an old version")
    assert run.state().frontier is None, "a co-commit against an old version changed the register"
    case.replayed(LEFT, RIGHT, when="after the next run")


@only(co_committing)
def a_co_commit_by_a_superseded_run_changes_nothing(case: Case) -> None:
    run = case.run()
    committables = _written(run)
    stale = run.stored()
    case.run().begin(0)
    committer = run.committer
    assert committer.co_commits
    with suppress(AbsError):  # its staged rows may have been swept already
        done = committer.co_commit(committables, stale.version, replace(stale.state, frontier=0))
        assert not isinstance(done, str), "a co-commit of a superseded run was let through"
    case.hides_all("after a co-commit of a superseded run")
    case.replayed(LEFT, RIGHT, when="after the next run")


def the_sink_is_one_register_for_all_processes(case: Case) -> None:
    case.run().epoch(0, LEFT)
    seen = case.run().state()
    assert seen.frontier == 0, "a sink built anew does not see the register's state"


def _written(run: Run) -> list[Committable]:
    """Two pre-committed handles of epoch 0."""
    committables = committables_of(run.tasks(0, LEFT, RIGHT))
    assert len(committables) == 2, f"two tasks with rows gave {len(committables)} handles"
    return committables


def _decided(case: Case) -> tuple[Run, list[Committable]]:
    """A run whose epoch 0 is decided, by two handles, and not committed."""
    run = case.halted(Cut("commit"), LEFT, RIGHT)
    return case.run(run=run.who.run), list(run.state().open[0].committables)
