"""A sink with one rule broken, and the checks that find it."""

from __future__ import annotations

import itertools
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from abs_core.errors import TargetError
from abs_core.model import Committable, Finding, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.routing import NothingToCommit
from abs_testing.fakes import FakeSink, target, writers
from abs_testing.fakes import sink as fake_sink
from abs_testing.fakes.sink import HandleCommitter, TransactionCommitter
from abs_testing.fakes.writers import StagingWriter, TwoPhaseWriter, UpsertWriter
from tests.planted import Bug, Plant

STAYS = "a_handle_that_cannot_be_aborted_does_not_stop_the_sweep_of_the_others"


def in_doubt_by_prefix(plant: Plant) -> None:
    def in_doubt(self: HandleCommitter, job: str) -> Sequence[InDoubt]:
        with self._target.transaction() as db:
            found = db.execute("SELECT handle FROM prepared WHERE job LIKE ? || '%'", [job])
            names = [HandleName.parse(handle) for (handle,) in found]
        return [InDoubt(name, None, "") for name in names if name is not None]

    plant(HandleCommitter, "in_doubt", in_doubt)


def in_doubt_of_no_job_is_nothing(plant: Plant) -> None:
    right = HandleCommitter.in_doubt

    def in_doubt(self: HandleCommitter, job: str | None) -> Sequence[InDoubt]:
        return [] if job is None else right(self, job)

    plant(HandleCommitter, "in_doubt", in_doubt)


def leaves_what_its_preflight_tried(plant: Plant) -> None:
    def preflight(self: FakeSink, job: str, tasks: int | None = None) -> Sequence[Finding]:
        probe = HandleName("0" * 16, job, 0, 0, 0, secrets.token_hex(6))
        with self._target.transaction() as db:
            db.execute("INSERT INTO prepared VALUES (?, ?, 1)", [str(probe), job])
        return []

    plant(FakeSink, "preflight", preflight)


def ends_its_handles_when_it_is_closed(plant: Plant) -> None:
    def close(self: FakeSink) -> None:
        with self._target.transaction() as db:
            db.execute("DELETE FROM prepared")

    plant(FakeSink, "close", close)


def in_doubt_never(plant: Plant) -> None:
    plant(HandleCommitter, "in_doubt", lambda self, job: [])


def commits_again(plant: Plant) -> None:
    """A repeated commit applies the rows a second time."""

    def drop(db: object, handle: str) -> None:
        pass

    plant(fake_sink, "drop", drop)


def takes_absence_for_a_commit(plant: Plant) -> None:
    def commit(
        self: HandleCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Outcome]:
        for committable in committables:
            self._commit(committable)
        return {c.handle: Outcome.COMMITTED for c in committables}

    plant(HandleCommitter, "commit", commit)


def leaves_no_proof(plant: Plant) -> None:
    right = HandleCommitter._apply

    def apply(self: HandleCommitter, db: object, committable: Committable) -> None:
        right(self, db, committable)  # type: ignore[arg-type]
        # The marker that follows is for another handle.
        db.execute(  # type: ignore[attr-defined]
            "CREATE TRIGGER IF NOT EXISTS gone AFTER INSERT ON marker BEGIN DELETE FROM marker; END"
        )

    plant(HandleCommitter, "_apply", apply)


def forgets_nothing(plant: Plant) -> None:
    plant(HandleCommitter, "forget", lambda self, state: None)


def forgets_everything(plant: Plant) -> None:
    def forget(self: HandleCommitter, state: JobState) -> None:
        with self._target.transaction() as db:
            db.execute("DELETE FROM marker")

    plant(HandleCommitter, "forget", forget)


def forgets_by_generation_alone(plant: Plant) -> None:
    """What earlier runs have proven goes, although a decision of theirs is still open."""

    def forget(self: HandleCommitter, state: JobState) -> None:
        with self._target.transaction() as db:
            for (handle,) in db.execute("SELECT handle FROM marker").fetchall():
                name = HandleName.parse(handle)
                if name is not None and name.generation < state.generation:
                    db.execute("DELETE FROM marker WHERE handle = ?", [handle])

    plant(HandleCommitter, "forget", forget)


def writes_although_its_epoch_was_given_up(plant: Plant) -> None:
    right = UpsertWriter._check

    def check(self: UpsertWriter, db: sqlite3.Connection) -> None:
        task = self._task
        stored = target.read(db, task.job)
        if stored is None or task.epoch not in stored.state.abandoned:
            right(self, db)

    plant(UpsertWriter, "_check", check)


def aborts_nothing(plant: Plant) -> None:
    plant(HandleCommitter, "abort", lambda self, handles: None)


def one_that_stays_stops_its_sweep(plant: Plant) -> None:
    """The first handle that cannot be aborted ends the sweep of all."""

    def abort_each(handles: Sequence[HandleName], abort: Callable[[HandleName], object]) -> None:
        for handle in handles:
            abort(handle)

    plant(fake_sink, "abort_each", abort_each)


def says_nothing_of_what_stays(plant: Plant) -> None:
    """What cannot be aborted is passed over without a word."""

    def abort_each(handles: Sequence[HandleName], abort: Callable[[HandleName], object]) -> None:
        for handle in handles:
            with suppress(TargetError):
                abort(handle)

    plant(fake_sink, "abort_each", abort_each)


def shows_rows_early(plant: Plant) -> None:
    right = TwoPhaseWriter.write

    def write(self: TwoPhaseWriter, batch: object) -> None:
        right(self, batch)
        with self._target.transaction() as db:
            db.executemany("INSERT INTO data VALUES (?, ?)", self._taken)

    plant(TwoPhaseWriter, "write", write)


def makes_a_handle_of_nothing(plant: Plant) -> None:
    plant(TwoPhaseWriter, "pre_commit", lambda self: self._committable())


def miscounts(plant: Plant) -> None:
    right = writers.FakeWriter._committable

    def committable(self: writers.FakeWriter) -> Committable:
        found = right(self)
        return Committable(found.handle, found.rows + 1, found.digest)

    plant(writers.FakeWriter, "_committable", committable)


def undoes_its_handle(plant: Plant) -> None:
    def abort(self: StagingWriter) -> None:
        with self._target.transaction() as db:
            writers.drop(db, self._handle)

    plant(StagingWriter, "abort", abort)


def leaves_what_it_staged(plant: Plant) -> None:
    plant(StagingWriter, "abort", lambda self: None)


def co_commits_whatever_the_version(plant: Plant) -> None:
    right = TransactionCommitter.co_commit

    def co_commit(
        self: TransactionCommitter, given: Sequence[Committable], expected: str, state: JobState
    ) -> object:
        with self._target.transaction() as db:
            stored = target.read(db, state.job)
        return right(self, given, None if stored is None else stored.version, state)

    plant(TransactionCommitter, "co_commit", co_commit)


def never_asks_the_register(plant: Plant) -> None:
    plant(UpsertWriter, "_check", lambda self, db: None)


def is_another_target_each_time(plant: Plant) -> None:
    numbers = itertools.count()
    plant(FakeSink, "target_id", property(lambda self: f"fake:{next(numbers)}"))


def takes_everything_for_aborted(plant: Plant) -> None:
    def inspect(
        self: NothingToCommit, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Inspection]:
        return {c.handle: Inspection(Outcome.ABORTED) for c in committables}

    plant(NothingToCommit, "inspect", inspect)


PLANTED: dict[Bug, tuple[str, str, set[str]]] = {
    in_doubt_by_prefix: ("2pc", "append", {"in_doubt_is_exactly_the_jobs_own"}),
    in_doubt_of_no_job_is_nothing: ("2pc", "append", {"in_doubt_of_no_job_is_everything"}),
    leaves_what_its_preflight_tried: ("2pc", "append", {"a_preflight_changes_nothing"}),
    ends_its_handles_when_it_is_closed: (
        "2pc",
        "append",
        {"a_closed_sink_leaves_its_handles_and_other_sinks_alone"},
    ),
    in_doubt_never: ("2pc", "append", {"the_loser_of_a_retried_task_changes_nothing"}),
    commits_again: ("2pc", "append", {"epochs_of_one_task_are_there_once"}),
    takes_absence_for_a_commit: (
        "2pc",
        "append",
        {"commit_of_an_aborted_handle_is_not_reported_as_done"},
    ),
    leaves_no_proof: ("2pc", "append", {"a_committed_handle_is_known_as_committed"}),
    forgets_nothing: ("2pc", "append", {"epochs_of_one_task_are_there_once"}),
    forgets_everything: ("2pc", "append", {"the_proof_of_a_commit_outlives_the_decision"}),
    forgets_by_generation_alone: (
        "2pc",
        "append",
        {"the_proof_of_a_commit_outlives_the_run_that_decided"},
    ),
    writes_although_its_epoch_was_given_up: (
        "idempotent",
        "upsert",
        {"a_task_that_outlives_its_epochs_abort_changes_nothing"},
    ),
    aborts_nothing: ("2pc", "append", {"a_start_sweeps_what_earlier_runs_left"}),
    one_that_stays_stops_its_sweep: ("2pc", "append", {STAYS}),
    says_nothing_of_what_stays: ("2pc", "append", {STAYS}),
    shows_rows_early: ("2pc", "append", {"rows_are_invisible_until_commit"}),
    makes_a_handle_of_nothing: ("2pc", "append", {"a_writer_without_rows_has_no_handle"}),
    miscounts: ("2pc", "append", {"a_committable_names_its_writer"}),
    undoes_its_handle: ("wal", "append", {"abort_of_a_writer_never_undoes_its_handle"}),
    leaves_what_it_staged: ("wal", "append", {"an_aborted_writer_leaves_nothing"}),
    co_commits_whatever_the_version: (
        "wal",
        "append",
        {"co_commit_against_an_old_version_changes_nothing"},
    ),
    never_asks_the_register: (
        "idempotent",
        "upsert",
        {
            "a_late_loser_never_overwrites_a_newer_epoch",
            "a_zombie_never_overwrites_its_successor",
        },
    ),
    is_another_target_each_time: ("2pc", "append", {"a_sink_knows_its_target_after_a_restart"}),
    takes_everything_for_aborted: ("idempotent", "upsert", {"inspect_answers_for_every_handle"}),
}
"""Each bug: protocol and write of the sink that has it, and the rules whose checks find it."""
