"""Epochs without faults: every written row is there once, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from abs_core.codec import committable_from_json, committable_to_json
from abs_core.model import Committable, HandleName, Share, Wrote
from abs_testing.case import JOB, Case, rows
from abs_testing.engine import Run, committables_of
from abs_testing.harness import batch_of
from abs_testing.rules import hiding, only, upserting


def epochs_of_one_task_are_there_once(case: Case) -> None:
    run = case.run()
    run.epoch(0, rows(0, 3))
    run.epoch(1, rows(10, 3))
    case.finished(rows(0, 3), rows(10, 3), when="after two epochs")
    assert run.state().frontier == 1, "the register must hold both epochs as finished"


def epochs_of_many_tasks_are_there_once(case: Case) -> None:
    run = case.run()
    run.epoch(0, rows(0, 3), rows(10, 2), rows(20, 4))
    run.epoch(1, rows(30, 1), rows(40, 1), rows(50, 1))
    expected = [rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1), rows(40, 1), rows(50, 1)]
    case.finished(*expected, when="after two epochs of three tasks")


def rows_of_an_epoch_may_be_written_before_the_one_before_is_committed(case: Case) -> None:
    """As by an engine whose tasks do not wait for the commit."""
    run = case.run(gaps=True)
    parts = [(rows(20 * epoch, 3), rows(20 * epoch + 10, 2)) for epoch in range(4)]
    shares = run.tasks(0, *parts[0])
    for epoch, part in enumerate(parts[1:], start=1):
        later = run.tasks(epoch, *part)
        run.commit(epoch - 1, shares)
        shares = later
    run.commit(len(parts) - 1, shares)
    expected = [part for of_epoch in parts for part in of_epoch]
    case.finished(*expected, when="after epochs whose tasks did not wait for commits")


def epochs_may_start_at_any_number(case: Case) -> None:
    run = case.run()
    run.epoch(7, rows(0, 2))
    run.epoch(8, rows(10, 2))
    case.finished(rows(0, 2), rows(10, 2), when="after epochs 7 and 8")


def each_step_may_be_done_by_another_process(case: Case) -> None:
    planned = case.run(run="one")
    planned.begin(0)
    share = case.run(run="one").task(0, 0, rows(0, 3))
    case.run(run="one").commit(0, [share])
    case.finished(rows(0, 3), when="after an epoch whose steps were in three processes")


def a_preflight_changes_nothing(case: Case) -> None:
    run = case.run(run="one")
    run.epoch(0, rows(0, 3))
    shares = run.tasks(1, rows(10, 2))
    before, held = run.state(), _in_doubt(run, shares)
    for job in (JOB, "another"):
        case.sink().preflight(job)
        case.sink().preflight(job, tasks=4)
    assert run.store.load("another") is None, "a preflight made a register"
    assert run.state() == before, "a preflight changed the register"
    assert _in_doubt(run, shares) == held, "a preflight ended what is in doubt"
    run.commit(1, shares)
    case.finished(rows(0, 3), rows(10, 2), when="after preflights beside a job that runs")
    case.is_clean("another", when="after a preflight of a job that never ran")


def a_closed_sink_leaves_its_handles_and_other_sinks_alone(case: Case) -> None:
    first, second = case.run(run="one"), case.run(run="one")
    share = first.task(0, 0, rows(0, 3))
    other = second.attempt(0, 1).write(*rows(10, 2))
    first.sink.close()
    first.sink.close()
    second.commit(0, [share, other.write(*rows(20, 1)).pre_commit()])
    case.finished(rows(0, 3), rows(10, 2), rows(20, 1), when="after one of two sinks was closed")


def handles_of_an_undecided_epoch_may_join_the_next_decision(case: Case) -> None:
    """As in the embedded runtime, where a failed checkpoint rewinds nothing."""
    run = case.run()
    shares = [run.task(0, 0, rows(0, 3)), run.task(1, 0, rows(10, 2))]
    run.commit(1, shares)
    run.epoch(2, rows(20, 1))
    case.run().epoch(3, rows(30, 1))
    expected = [rows(0, 3), rows(10, 2), rows(20, 1), rows(30, 1)]
    case.finished(*expected, when="after a decision on two epochs' handles, and a new run's sweep")


def an_epoch_without_tasks_is_finished(case: Case) -> None:
    run = case.run()
    run.epoch(0, rows(0, 2))
    run.commit(1, [])
    run.epoch(2, rows(10, 2))
    case.finished(rows(0, 2), rows(10, 2), when="after an epoch of no tasks between two others")


def an_epoch_without_rows_is_finished(case: Case) -> None:
    run = case.run()
    run.epoch(0, [], [])
    assert run.state().frontier == 0, "an epoch without rows must be finished like any other"
    run.epoch(1, rows(0, 2), [])
    case.finished(rows(0, 2), when="after an epoch of empty tasks and one with an empty task")


def a_writer_without_rows_has_no_handle(case: Case) -> None:
    run = case.run()
    share = run.attempt(0).pre_commit()
    assert share.committable is None, f"pre_commit of an empty writer gave {share.committable}"
    attempt = run.attempt(0, 1)
    attempt.writer.write(batch_of([]))
    assert attempt.pre_commit().committable is None, "a batch of no rows must give no handle"
    run.commit(0, [share])
    case.finished(when="after two writers without rows")


def a_writer_takes_many_batches(case: Case) -> None:
    run = case.run()
    attempt = run.attempt(0)
    attempt.write(*rows(0, 2)).write(*rows(2, 1)).writer.write(batch_of([]))
    share = attempt.write(*rows(3, 500)).pre_commit()
    assert _committable(share).rows == 503, "a committable must count the rows of all batches"
    run.commit(0, [share])
    case.finished(rows(0, 503), when="after one writer with four batches")


def a_committable_names_its_writer(case: Case) -> None:
    run = case.run()
    attempt = run.attempt(0, 3)
    committable = _committable(attempt.write(*rows(0, 2)).pre_commit())
    assert committable.handle == attempt.task.handle, (
        f"{committable.handle} is not {attempt.task.handle}"
    )
    assert committable.rows == 2, f"it counts {committable.rows} rows of 2"
    algorithm, _, digest = committable.digest.partition(":")
    assert all((algorithm, digest)), (
        f"the digest {committable.digest!r} is not of the form algorithm:hex"
    )


def a_committable_survives_its_text(case: Case) -> None:
    committable = _committable(case.run().attempt(0).write(*rows(0, 2)).pre_commit())
    again = committable_from_json(committable_to_json(committable))
    assert again == committable, f"{committable} is read back from its text as {again}"


@only(hiding)
def rows_are_invisible_until_commit(case: Case) -> None:
    run = case.run()
    open_writer = run.attempt(0, 0).write(*rows(0, 2))
    case.hides_all("while a writer is open")
    shares = [open_writer.pre_commit(), run.task(0, 1, rows(10, 2))]
    case.hides_all("after pre-commit")
    run.commit(0, shares)
    case.finished(rows(0, 2), rows(10, 2), when="after commit")


def an_aborted_writer_leaves_nothing(case: Case) -> None:
    run = case.run()
    unused = run.attempt(0, 0)
    used = run.attempt(0, 1).write(*rows(0, 2))
    for attempt in (unused, used, used):
        attempt.writer.abort()  # at any time, and again: it never raises
    case.finished(when="after abort of writers that never pre-committed")


@only(hiding)
def abort_of_a_writer_never_undoes_its_handle(case: Case) -> None:
    run = case.run()
    attempt = run.attempt(0).write(*rows(0, 2))
    share = attempt.pre_commit()
    attempt.writer.abort()
    run.commit(0, [share])
    case.finished(rows(0, 2), when="after the abort of a writer that had pre-committed")


@only(upserting)
def a_later_epoch_overwrites_the_key(case: Case) -> None:
    run = case.run()
    run.epoch(0, rows(0, 3, "old"))
    run.epoch(1, rows(1, 3, "new"))
    case.finished(rows(0, 1, "old"), rows(1, 3, "new"), when="after an upsert of two old keys")


def a_sink_knows_its_target_after_a_restart(case: Case) -> None:
    first, second = case.sink(), case.sink()
    assert first.target_id == second.target_id, "the identity of one target must not change"
    assert first.guarantee() == second.guarantee(), "the guarantee must not change on its own"


def a_preflight_refuses_no_target_of_the_checks(case: Case) -> None:
    sink = case.sink()
    sink.preflight(JOB)
    findings = sink.preflight(JOB, tasks=2)
    broken = [finding.what for finding in findings if finding.severity.value == "error"]
    assert not broken, f"preflight refuses the target of the checks: {broken}"
    case.finished(when="after preflight")
    case.replayed(rows(0, 1), when="after preflight and an epoch")


def _committable(share: Wrote) -> Committable:
    assert share.committable is not None, "pre_commit of a writer with rows gave no handle"
    return share.committable


def _in_doubt(run: Run, shares: Sequence[Share]) -> set[HandleName]:
    """Which of these are in doubt. (The target's system may hold others'.)"""
    names = {name for c in committables_of(shares) for name in (c.handle, c.held_as)}
    return names & {doubt.handle for doubt in run.committer.in_doubt(JOB)}
