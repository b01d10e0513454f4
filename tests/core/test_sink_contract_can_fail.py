"""A sink that breaks a rule is found by the check that bears the rule's name."""

from __future__ import annotations

import importlib
import itertools
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from abs_core import protocol
from abs_core.births import consent
from abs_core.births import rules as births
from abs_core.births.certificate import Origin
from abs_core.births.certifier import Certifier
from abs_core.errors import TargetError
from abs_core.fakes import FakeSink, committers, register, writers
from abs_core.fakes.committers import HandleCommitter, NothingToCommit, TransactionCommitter
from abs_core.fakes.writers import StagingWriter, TwoPhaseWriter, UpsertWriter
from abs_core.model import Committable, Finding, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.protocol import Identity, Verdict
from abs_core.testing import ForkServer, check_crashes, run_check
from abs_core.testing.checks import CHECKS
from tests.kit.fake_harness import FakeHarness, open_fake

Patch = pytest.MonkeyPatch
DELETED = "another_lineage_from_the_place_of_a_checkpoint_is_refused_unless_the_target_is_empty"
STAYS = "a_handle_that_cannot_be_aborted_does_not_stop_the_sweep_of_the_others"


def in_doubt_by_prefix(patch: Patch) -> None:
    def in_doubt(self: HandleCommitter, job: str) -> Sequence[InDoubt]:
        with self._target.transaction() as db:
            found = db.execute("SELECT handle FROM prepared WHERE job LIKE ? || '%'", [job])
            names = [HandleName.parse(handle) for (handle,) in found]
        return [InDoubt(name, None, "") for name in names if name is not None]

    patch.setattr(HandleCommitter, "in_doubt", in_doubt)


def in_doubt_of_no_job_is_nothing(patch: Patch) -> None:
    right = HandleCommitter.in_doubt

    def in_doubt(self: HandleCommitter, job: str | None) -> Sequence[InDoubt]:
        return [] if job is None else right(self, job)

    patch.setattr(HandleCommitter, "in_doubt", in_doubt)


def leaves_what_its_preflight_tried(patch: Patch) -> None:
    def preflight(self: FakeSink, job: str, tasks: int | None = None) -> Sequence[Finding]:
        probe = HandleName("0" * 16, job, 0, 0, 0, secrets.token_hex(6))
        with self._target.transaction() as db:
            db.execute("INSERT INTO prepared VALUES (?, ?, 1)", [str(probe), job])
        return []

    patch.setattr(FakeSink, "preflight", preflight)


def ends_its_handles_when_it_is_closed(patch: Patch) -> None:
    def close(self: FakeSink) -> None:
        with self._target.transaction() as db:
            db.execute("DELETE FROM prepared")

    patch.setattr(FakeSink, "close", close)


def in_doubt_never(patch: Patch) -> None:
    patch.setattr(HandleCommitter, "in_doubt", lambda self, job: [])


def commits_again(patch: Patch) -> None:
    """A repeated commit applies the rows a second time."""

    def drop(db: object, handle: str) -> None:
        pass

    patch.setattr(committers, "drop", drop)


def takes_absence_for_a_commit(patch: Patch) -> None:
    def commit(
        self: HandleCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Outcome]:
        for committable in committables:
            self._commit(committable)
        return {c.handle: Outcome.COMMITTED for c in committables}

    patch.setattr(HandleCommitter, "commit", commit)


def leaves_no_proof(patch: Patch) -> None:
    right = HandleCommitter._apply

    def apply(self: HandleCommitter, db: object, committable: Committable) -> None:
        right(self, db, committable)  # type: ignore[arg-type]
        # The marker that follows is for another handle.
        db.execute(  # type: ignore[attr-defined]
            "CREATE TRIGGER IF NOT EXISTS gone AFTER INSERT ON marker BEGIN DELETE FROM marker; END"
        )

    patch.setattr(HandleCommitter, "_apply", apply)


def forgets_nothing(patch: Patch) -> None:
    patch.setattr(HandleCommitter, "forget", lambda self, state: None)


def forgets_everything(patch: Patch) -> None:
    def forget(self: HandleCommitter, state: JobState) -> None:
        with self._target.transaction() as db:
            db.execute("DELETE FROM marker")

    patch.setattr(HandleCommitter, "forget", forget)


def forgets_by_generation_alone(patch: Patch) -> None:
    """What earlier runs have proven goes, although a decision of theirs is still open."""

    def forget(self: HandleCommitter, state: JobState) -> None:
        with self._target.transaction() as db:
            for (handle,) in db.execute("SELECT handle FROM marker").fetchall():
                name = HandleName.parse(handle)
                if name is not None and name.generation < state.generation:
                    db.execute("DELETE FROM marker WHERE handle = ?", [handle])

    patch.setattr(HandleCommitter, "forget", forget)


def writes_although_its_epoch_was_given_up(patch: Patch) -> None:
    right = UpsertWriter._check

    def check(self: UpsertWriter, db: sqlite3.Connection) -> None:
        task = self._task
        stored = register.read(db, task.job)
        if stored is None or task.epoch not in stored.state.abandoned:
            right(self, db)

    patch.setattr(UpsertWriter, "_check", check)


def aborts_nothing(patch: Patch) -> None:
    patch.setattr(HandleCommitter, "abort", lambda self, handles: None)


def one_that_stays_stops_its_sweep(patch: Patch) -> None:
    """The first handle that cannot be aborted ends the sweep of all."""

    def abort_each(handles: Sequence[HandleName], abort: Callable[[HandleName], object]) -> None:
        for handle in handles:
            abort(handle)

    patch.setattr(committers, "abort_each", abort_each)


def says_nothing_of_what_stays(patch: Patch) -> None:
    """What cannot be aborted is passed over without a word."""

    def abort_each(handles: Sequence[HandleName], abort: Callable[[HandleName], object]) -> None:
        for handle in handles:
            with suppress(TargetError):
                abort(handle)

    patch.setattr(committers, "abort_each", abort_each)


def shows_rows_early(patch: Patch) -> None:
    right = TwoPhaseWriter.write

    def write(self: TwoPhaseWriter, batch: object) -> None:
        right(self, batch)
        with self._target.transaction() as db:
            db.executemany("INSERT INTO data VALUES (?, ?)", self._rows)

    patch.setattr(TwoPhaseWriter, "write", write)


def makes_a_handle_of_nothing(patch: Patch) -> None:
    patch.setattr(TwoPhaseWriter, "pre_commit", lambda self: self._committable())


def miscounts(patch: Patch) -> None:
    right = writers.FakeWriter._committable

    def committable(self: writers.FakeWriter) -> Committable:
        found = right(self)
        return Committable(found.handle, found.rows + 1, found.digest)

    patch.setattr(writers.FakeWriter, "_committable", committable)


def undoes_its_handle(patch: Patch) -> None:
    def abort(self: StagingWriter) -> None:
        with self._target.transaction() as db:
            writers.drop(db, self._handle)

    patch.setattr(StagingWriter, "abort", abort)


def leaves_what_it_staged(patch: Patch) -> None:
    patch.setattr(StagingWriter, "abort", lambda self: None)


def co_commits_whatever_the_version(patch: Patch) -> None:
    right = TransactionCommitter.co_commit

    def co_commit(
        self: TransactionCommitter, given: Sequence[Committable], expected: str, state: JobState
    ) -> object:
        with self._target.transaction() as db:
            stored = register.read(db, state.job)
        return right(self, given, None if stored is None else stored.version, state)

    patch.setattr(TransactionCommitter, "co_commit", co_commit)


def never_asks_the_register(patch: Patch) -> None:
    patch.setattr(UpsertWriter, "_check", lambda self, db: None)


def is_another_target_each_time(patch: Patch) -> None:
    numbers = itertools.count()
    patch.setattr(FakeSink, "target", property(lambda self: f"fake:{next(numbers)}"))


def takes_everything_for_aborted(patch: Patch) -> None:
    def inspect(
        self: NothingToCommit, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Inspection]:
        return {c.handle: Inspection(Outcome.ABORTED) for c in committables}

    patch.setattr(NothingToCommit, "inspect", inspect)


def mints_what_is_lost(patch: Patch) -> None:
    """Not the sink's: what 315a560 did. Whatever the checkpoint tells of, the register is believed."""

    def start(
        state: JobState | None, who: Identity, new: str, origin: Origin, epoch: int, place: str
    ) -> Verdict:
        return protocol.start(state, who, new)

    patch.setattr(births, "start", start)


def consents_for_whoever_asks(patch: Patch) -> None:
    """As every release did: the token names what it overrides, and not for whom, nor where."""
    right = consent.to_adopt
    anybody = Identity("job", "", "", "")
    patch.setattr(consent, "to_adopt", lambda state, who, epoch: right(state, anybody, 0))


def certifies_nothing(patch: Patch) -> None:
    patch.setattr(Certifier, "certify", lambda self, state, epoch, *, gaps_allowed: None)


def takes_a_certificate_that_cannot_be_written_for_a_warning(patch: Patch) -> None:
    patch.setattr(births, "uncertified", lambda *given: None)


def notes_no_epoch(patch: Patch) -> None:
    """The certificate is written once per run, although the engine may leave epochs out."""
    patch.setattr(Certifier, "note", lambda self, state, epoch: None)


def goes_on_where_an_epoch_cannot_be_noted(patch: Patch) -> None:
    right = Certifier.note

    def note(self: Certifier, state: JobState, epoch: int) -> None:
        with suppress(TargetError):
            right(self, state, epoch)

    patch.setattr(Certifier, "note", note)


def asks_nobody_whose_checkpoint_it_was(patch: Patch) -> None:
    patch.setattr(births, "begun_elsewhere", lambda others, who, epoch: None)


def takes_its_target_for_empty(patch: Patch) -> None:
    patch.setattr(FakeSink, "is_empty", lambda self: True)


def never_finds_its_target_empty(patch: Patch) -> None:
    patch.setattr(FakeSink, "is_empty", lambda self: False)


def tells_epochs_by_their_count(patch: Patch) -> None:
    """As every release did before digests of rows."""
    right = protocol.same_epoch
    patch.setattr(protocol, "same_epoch", lambda s, e, fingerprint, rows: right(s, e, None, rows))


BROKEN: dict[Callable[[Patch], None], tuple[str, str, set[str]]] = {
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
    mints_what_is_lost: (
        "2pc",
        "append",
        {
            "a_register_that_is_not_there_is_not_minted_beside_a_certificate",
            "a_register_that_is_another_one_or_went_back_is_refused",
            "a_checkpoint_of_another_job_is_refused",
        },
    ),
    consents_for_whoever_asks: (
        "2pc",
        "append",
        {"a_lineage_may_be_adopted_by_consent_of_its_own"},
    ),
    certifies_nothing: (
        "wal",
        "append",
        {"the_certificate_is_written_before_the_first_decision"},
    ),
    takes_a_certificate_that_cannot_be_written_for_a_warning: (
        "2pc",
        "append",
        {"a_register_that_may_be_lost_decides_nothing_where_no_certificate_can_be_written"},
    ),
    notes_no_epoch: (
        "2pc",
        "append",
        {"a_register_that_went_back_is_refused_where_epochs_may_be_left_out"},
    ),
    goes_on_where_an_epoch_cannot_be_noted: (
        "2pc",
        "append",
        {"an_epoch_that_cannot_be_noted_ends_the_run_where_epochs_may_be_left_out"},
    ),
    asks_nobody_whose_checkpoint_it_was: ("2pc", "append", {DELETED}),
    takes_its_target_for_empty: ("wal", "append", {DELETED}),
    never_finds_its_target_empty: ("2pc", "append", {DELETED}),
    takes_everything_for_aborted: ("idempotent", "upsert", {"inspect_answers_for_every_handle"}),
    tells_epochs_by_their_count: (
        "2pc",
        "append",
        {"other_rows_of_the_same_number_are_told_by_their_digest"},
    ),
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_check_sink_finds_a_sink_that(broken: Callable[[Patch], None], monkeypatch: Patch) -> None:
    broken(monkeypatch)
    way, write, rules = BROKEN[broken]
    monkeypatch.setattr("abs_core.testing.case.PATIENCE", 0.05)
    opener = partial(open_fake, way, write)
    for check in CHECKS:
        if check.rule in rules:
            with pytest.raises(AssertionError, match=check.rule):
                run_check(opener, check)


def test_check_crashes_finds_a_commit_in_two_transactions(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", here)
    monkeypatch.syspath_prepend(here)
    torn = importlib.import_module("torn_sink")
    numbers = itertools.count()

    @contextmanager
    def opener() -> Iterator[FakeHarness]:
        path = tmp_path / f"{next(numbers)}.sqlite"
        with open_fake("wal", "append", path=path) as harness:
            harness.new_sink = partial(torn.torn_sink, path)
            yield harness

    try:
        with ForkServer() as fork_server, pytest.raises(AssertionError, match="inside_co_commit"):
            check_crashes(opener, fork_server, passages=1)
    finally:
        sys.modules.pop("torn_sink")
