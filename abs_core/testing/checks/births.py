"""Lost registers: what the checkpoint tells of, and the sink's own register does not hold."""

from __future__ import annotations

from dataclasses import replace

from abs_core.certificate import Certificate, MemoryCertificates
from abs_core.contracts import Inventory
from abs_core.errors import IdentityError, RegisterLostError
from abs_core.model import job_key
from abs_core.parent_certificates import ParentCertificates
from abs_core.testing.case import JOB, Case, consent_in, raises, rows
from abs_core.testing.engine import QUICK, Run
from abs_core.testing.rules import Rules

rule = Rules()
ROWS, MORE = rows(0, 3), rows(10, 3)


@rule()
def a_register_that_is_not_there_is_not_minted_beside_a_certificate(case: Case) -> None:
    checkpoint = MemoryCertificates(Certificate(JOB, "0" * 16, "elsewhere", 1, None, 0))
    run = case.run(certificates=checkpoint)
    error = raises(RegisterLostError, lambda: run.begin(1))
    place = run.store.place(JOB) if isinstance(run.store, Inventory) else ""
    assert place in error.what, f"where it was looked for is not told: {error.what}"
    assert run.store.load(JOB) is None, "a register was minted"
    case.finished(when="after a start beside a certificate, without a register")


@rule()
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


@rule()
def a_checkpoint_of_another_job_is_refused(case: Case) -> None:
    checkpoint = MemoryCertificates()
    case.run(certificates=checkpoint).epoch(0, ROWS)
    renamed = case.run("renamed", certificates=checkpoint)
    raises(IdentityError, lambda: renamed.begin(0))
    assert renamed.store.load("renamed") is None, "a register was minted"
    case.finished(ROWS, when="after a start under another name")


@rule()
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


@rule()
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
