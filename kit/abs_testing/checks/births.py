"""Lost registers: a start sees it by the checkpoint's certificate; a sweep keeps what is committed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from abs_core.certificate import Certificate, MemoryCertificates
from abs_core.contracts import Inventory, Sink
from abs_core.coordinator.certifier import ParentCertificates
from abs_core.errors import IdentityError, RefusedError, RegisterLostError
from abs_core.model import job_key
from abs_testing.case import JOB, Case, consent_in, raises, rows
from abs_testing.cuts import Cut
from abs_testing.engine import QUICK, Run
from abs_testing.harness import Restoring
from abs_testing.rules import listed, only, restoring

ROWS, MORE = rows(0, 3), rows(10, 3)
PLACE = "file://here/checkpoint"


class Brittle(MemoryCertificates):
    """A checkpoint that can be read, but not written while it is ``full``."""

    def __init__(self, *, full: bool = False) -> None:
        super().__init__()
        self.full = full

    def write(self, certificate: Certificate) -> None:
        if self.full:
            raise RefusedError("The checkpoint cannot be written.")
        super().write(certificate)


def a_register_that_is_not_there_is_not_minted_beside_a_certificate(case: Case) -> None:
    checkpoint = MemoryCertificates(Certificate(JOB, "0" * 16, "elsewhere", 1, None, 0))
    run = case.run(certificates=checkpoint)
    error = raises(RegisterLostError, lambda: run.begin(1))
    place = run.store.place(JOB) if isinstance(run.store, Inventory) else ""
    assert place in error.what, f"the error does not say where it was looked for: {error.what}"
    assert run.store.load(JOB) is None, "a register was minted"
    case.finished(when="after a start beside a certificate, without a register")


def a_register_that_is_another_one_or_went_back_is_refused(case: Case) -> None:
    checkpoint = MemoryCertificates()
    case.run(certificates=checkpoint).epoch(0, ROWS)
    run = case.run(certificates=checkpoint)
    run.epoch(1, MORE)
    right = checkpoint.certificate
    assert right is not None, "no certificate was written"
    assert (right.job, right.register, right.deciding) == (JOB, run.state().register, 1)
    assert (right.generation, right.frontier) == (2, 0)
    for wrong in (
        replace(right, register="0" * 16),
        replace(right, generation=3),
        replace(right, frontier=2),
        replace(right, deciding=2),
    ):
        lost = case.run(certificates=MemoryCertificates(wrong))
        raises(RegisterLostError, lambda lost=lost: lost.begin(3))  # type: ignore[misc]
        assert run.state().generation == 2, "a refused run has raised the generation"
    case.run(certificates=checkpoint).epoch(1, MORE)
    case.finished(ROWS, MORE, when="after registers that went back, and a replay")


def a_checkpoint_of_another_job_is_refused(case: Case) -> None:
    checkpoint = MemoryCertificates()
    case.run(certificates=checkpoint).epoch(0, ROWS)
    renamed = case.run("renamed", certificates=checkpoint)
    raises(IdentityError, lambda: renamed.begin(0))
    assert renamed.store.load("renamed") is None, "a register was minted"
    case.finished(ROWS, when="after a start under another name")


def a_batch_whose_register_is_lost_is_refused(case: Case) -> None:
    token, other = job_key("nightly", "monday"), job_key("nightly", "tuesday")
    store = case.run(token).store

    def run(job: str, adopt: str | None = None) -> Run:
        parent = ParentCertificates(store, job, "the target", QUICK)
        return case.run(job, adopt=adopt, certificates=parent)

    run(token).epoch(0, ROWS)
    run(other).epoch(0, MORE)
    run(token).epoch(0, ROWS)
    never = job_key("nightly", "lost")
    parent = ParentCertificates(store, never, "the target", QUICK)
    parent.write(Certificate(never, "0" * 16, "", 1, None, 0))
    error = raises(RegisterLostError, lambda: run(never).begin(0))
    assert store.load(never) is None, "a register was minted beside the parent record"
    consent = consent_in(error)
    noted = ParentCertificates(store, token, "the target", QUICK).read().certificate
    assert noted is not None, "the token is not noted in its job's parent record"
    run(never, consent).epoch(0, rows(20, 1))
    for job in (token, other, never):
        case.is_clean(job, when="after batches, one of which had lost its register")
    case.holds(ROWS, MORE, rows(20, 1), when="after batches, one of which had lost its register")


def the_certificate_is_written_before_the_first_decision(case: Case) -> None:
    class Full(MemoryCertificates):
        def write(self, certificate: Certificate) -> None:
            super().write(certificate)
            raise KeyboardInterrupt  # the process ends here

    checkpoint = Full()
    run = case.run(certificates=checkpoint)
    shares = run.tasks(0, ROWS)
    try:
        run.commit(0, shares)
    except KeyboardInterrupt:
        assert run.state().last_decided is None, "the epoch was decided before its certificate"
    assert checkpoint.certificate is not None, "no certificate was written"
    case.run(certificates=MemoryCertificates(checkpoint.certificate)).epoch(0, ROWS)
    case.finished(ROWS, when="after a run that ended between its certificate and its decision")


def a_register_that_may_be_lost_decides_nothing_where_no_certificate_can_be_written(
    case: Case,
) -> None:
    full = Brittle(full=True)
    case.run("new", certificates=full).epoch(0, rows(20, 1))  # nothing can be lost before
    case.run("new", certificates=full).epoch(1, rows(30, 1))  # its register says what was decided
    lost = case.run(certificates=full)
    shares = lost.tasks(1, ROWS)
    error = raises(RegisterLostError, lambda: lost.commit(1, shares))
    assert lost.state().last_decided is None, "an epoch was decided that may be committed already"
    case.run(certificates=full, adopt=consent_in(error)).epoch(1, ROWS)
    case.run(certificates=full).epoch(2, MORE)
    when = "after a job that went on by consent without a certificate"
    case.is_clean(JOB, "new", when=when)
    case.holds(rows(20, 1), rows(30, 1), ROWS, MORE, when=when)


def a_register_that_went_back_is_refused_where_epochs_may_be_left_out(case: Case) -> None:
    checkpoint = MemoryCertificates()
    run = case.run(certificates=checkpoint, gaps=True)
    run.epoch(0, ROWS)
    before = run.state()
    run.epoch(2, MORE)
    run.store.compare_and_set(JOB, run.stored().version, before)  # as from a backup
    lost = case.run(certificates=checkpoint, gaps=True)
    raises(RegisterLostError, lambda: lost.begin(2))
    case.finished(ROWS, MORE, when="after a register went back, in a job that leaves epochs out")


def an_epoch_that_cannot_be_noted_ends_the_run_where_epochs_may_be_left_out(case: Case) -> None:
    checkpoint = Brittle()
    run = case.run(certificates=checkpoint, gaps=True)
    run.epoch(0, ROWS)
    shares = run.tasks(2, MORE)
    checkpoint.full = True
    raises(RefusedError, lambda: run.commit(2, shares))
    assert run.state().last_decided == 2
    checkpoint.full = False
    again = case.run(certificates=checkpoint, gaps=True)
    again.epoch(2, MORE)
    assert checkpoint.certificate is not None
    assert checkpoint.certificate.frontier == 2, "an epoch that was committed before is not noted"
    checkpoint.full = True
    undone = case.run(certificates=checkpoint, gaps=True)
    shares = undone.tasks(4, rows(20, 1))
    raises(RefusedError, lambda: undone.commit(4, shares))
    assert undone.state().last_decided == 2, "an epoch was decided that the certificate cannot tell"
    checkpoint.full = False
    case.run(certificates=checkpoint, gaps=True).epoch(4, rows(20, 1))
    case.finished(ROWS, MORE, rows(20, 1), when="after epochs that could not be noted")


@only(listed)
def another_lineage_from_the_place_of_a_checkpoint_is_refused_unless_the_target_is_empty(
    case: Case,
) -> None:
    old = case.run("old", lineage="old", checkpoint=PLACE)
    old.epoch(0, [])
    early = case.run("early", lineage="early", checkpoint=PLACE)
    # A sink that says it must say so of an empty target; the default knows nothing.
    if type(early.sink).is_empty is not Sink.is_empty:
        early.begin(0)
    old.epoch(1, ROWS)
    new = case.run("new", lineage="new", checkpoint=PLACE)
    error = raises(IdentityError, lambda: new.begin(0))
    assert "job old" in error.what, f"the error does not say whose checkpoint it was: {error.what}"
    assert new.store.load("new") is None, "a register was minted"
    case.run("apart", lineage="apart", checkpoint=f"{PLACE}/another").begin(0)
    case.run("new", lineage="new", checkpoint=PLACE, adopt=consent_in(error)).epoch(0, MORE)
    when = "after a checkpoint was deleted, and another one made at its place"
    case.is_clean("old", "early", "new", "apart", when=when)
    case.holds(ROWS, MORE, when=when)


@only(restoring)
def a_sweep_whose_register_is_lost_keeps_what_it_committed(case: Case) -> None:
    harness = case.harness
    assert isinstance(harness, Restoring)
    nothing = harness.saved(JOB)
    case.run(run="one").begin(0)
    older = harness.saved(JOB)
    case.halted(Cut("forget"), ROWS, MORE, run="one")
    newest = harness.saved(JOB)
    for lose in (nothing, older):
        run = case.run(run="one")
        state = run.state()
        lose()
        with suppress(RegisterLostError):
            run.coordinator.sweep(state)
        newest()
    case.replayed(ROWS, MORE, when="after sweeps without the register, and its restoration")
