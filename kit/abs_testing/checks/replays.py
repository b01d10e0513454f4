"""Replays: the engine runs an epoch again, wherever the process before it ended."""

from __future__ import annotations

from abs_core.errors import EpochGapError, ReplayMismatchError
from abs_core.model import JobState
from abs_testing.case import LEFT, RIGHT, Case, raises, rows
from abs_testing.cuts import Cut
from abs_testing.rules import co_committing, only, two_step


def a_finished_epoch_is_skipped(case: Case) -> None:
    case.run().epoch(0, LEFT, RIGHT)
    again = case.run()
    again.epoch(0, LEFT, RIGHT)
    again.epoch(1, rows(20, 1))
    case.finished(LEFT, RIGHT, rows(20, 1), when="after a replay of a finished epoch")


def a_finished_epoch_is_skipped_however_it_is_partitioned(case: Case) -> None:
    case.run().epoch(0, LEFT, RIGHT)
    case.run().epoch(0, [LEFT[0], RIGHT[2]], [RIGHT[0], LEFT[1]], [LEFT[2], RIGHT[1]])
    case.finished(LEFT, RIGHT, when="after a replay with another partitioning")


def the_same_run_may_commit_an_epoch_again(case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    run.commit(0, shares)
    run.commit(0, shares)
    case.finished(LEFT, RIGHT, when="after the same commit, twice")


def an_undecided_epoch_is_written_again(case: Case) -> None:
    case.run().tasks(0, LEFT, RIGHT)
    case.hides_all("after pre-commit of a run that died")
    case.replayed(RIGHT, LEFT, when="after a replay of an epoch that was pre-committed only")


def an_epoch_that_died_before_its_decision_is_written_again(case: Case) -> None:
    case.halted(Cut("co_commit" if case.co_commits else "compare_and_set"), LEFT, RIGHT)
    case.hides_all("before the decision")
    case.replayed(LEFT, RIGHT, when="after a replay of an undecided epoch")


@only(two_step)
def a_decided_epoch_is_rolled_forward(case: Case) -> None:
    case.halted(Cut("commit"), LEFT, RIGHT)
    case.hides_all("after the decision, before any commit")
    case.replayed(LEFT, RIGHT, when="after a replay of a decided epoch")


@only(two_step)
def a_partly_committed_epoch_is_rolled_forward(case: Case) -> None:
    case.halted(Cut("commit", handles=1), LEFT, RIGHT)
    case.replayed(RIGHT, LEFT, when="after a replay of an epoch with one of two handles committed")


@only(two_step)
def a_committed_epoch_is_finished_by_the_next_run(case: Case) -> None:
    case.halted(Cut("compare_and_set", where=_is_finished), LEFT, RIGHT)
    case.replayed(LEFT, RIGHT, when="after a replay of an epoch that was committed, not finished")


def a_finished_epoch_is_tidied_by_the_next_run(case: Case) -> None:
    case.halted(Cut("forget"), LEFT, RIGHT)
    case.replayed(LEFT, RIGHT, when="after a replay of an epoch that died before forget")


def the_epoch_before_is_rolled_forward_with_the_next(case: Case) -> None:
    # The engine recorded the epoch as done, though this run died inside commit: it continues.
    cut = Cut("forget") if case.co_commits else Cut("commit", handles=1)
    case.halted(cut, LEFT, RIGHT)
    case.run().epoch(1, rows(20, 2))
    case.finished(LEFT, RIGHT, rows(20, 2), when="after the next epoch")


@only(two_step)
def a_lost_reply_of_the_decision_is_looked_up(case: Case) -> None:
    run = case.run(cut=Cut("compare_and_set", lose_reply=True))
    run.epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a decision whose reply was lost")


@only(two_step)
def a_lost_reply_of_finish_is_looked_up(case: Case) -> None:
    run = case.run(cut=Cut("compare_and_set", lose_reply=True, where=_is_finished))
    run.epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a finish whose reply was lost")


@only(co_committing)
def a_lost_reply_of_co_commit_is_looked_up(case: Case) -> None:
    run = case.run(cut=Cut("co_commit", lose_reply=True))
    run.epoch(0, LEFT, RIGHT)
    run.epoch(1, rows(20, 1))
    case.finished(LEFT, RIGHT, rows(20, 1), when="after a co-commit whose reply was lost")


@only(two_step)
def a_recovery_that_dies_is_recovered(case: Case) -> None:
    parts = LEFT, RIGHT, rows(20, 3)
    for handles in (0, 1, 2, 3):
        case.halted(Cut("commit", handles=handles), *parts)
    case.replayed(*parts, when="after four runs that each died one handle further")


def a_replay_with_another_row_count_is_refused(case: Case) -> None:
    case.run().epoch(0, LEFT, RIGHT)
    again = case.run()
    raises(ReplayMismatchError, lambda: again.epoch(0, LEFT))
    case.finished(LEFT, RIGHT, when="after a replay with fewer rows")


def a_replay_of_another_input_is_refused(case: Case) -> None:
    case.run().epoch(0, LEFT, RIGHT, fingerprint="one")
    again = case.run()
    raises(ReplayMismatchError, lambda: again.epoch(0, LEFT, RIGHT, fingerprint="two"))
    case.finished(LEFT, RIGHT, when="after a replay of another input")


def other_rows_of_the_same_number_are_told_by_their_digest(case: Case) -> None:
    case.run(digests=True).epoch(0, LEFT, RIGHT)
    again = case.run(digests=True)
    other = raises(ReplayMismatchError, lambda: again.epoch(0, LEFT, rows(10, 3, "other")))
    if 'column "value"' not in str(other):
        raise AssertionError(f"The column that differs is not named: {other}")
    swapped = [(LEFT[0][0], LEFT[1][1]), (LEFT[1][0], LEFT[0][1]), LEFT[2]]
    raises(ReplayMismatchError, lambda: case.run(digests=True).epoch(0, swapped, RIGHT))
    case.run(digests=True).epoch(0, RIGHT[:1], [*RIGHT[1:], *LEFT])
    case.replayed(LEFT, RIGHT, when="after replays told by their rows")


def an_epoch_left_out_is_refused(case: Case) -> None:
    run = case.run()
    run.epoch(0, LEFT)
    raises(EpochGapError, lambda: run.epoch(2, RIGHT))
    case.finished(LEFT, when="after an epoch was left out")


def _is_finished(state: JobState) -> bool:
    return state.frontier is not None and not state.open
