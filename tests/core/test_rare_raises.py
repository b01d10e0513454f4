"""Errors of the coordinator that no ordinary history meets: each is told, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from abs_core import consent, sinkmap
from abs_core.births import rules as births
from abs_core.certificate import Certificate, MemoryCertificates, Origin
from abs_core.contracts import Conflict, Version
from abs_core.coordinator.certifier import ParentCertificates
from abs_core.deadletters import MAX_REFUSALS, RowsRefused
from abs_core.errors import (
    ContentionError,
    CorruptionError,
    EpochGapError,
    IdentityError,
    ProtocolError,
    RefusedError,
    RegisterLostError,
)
from abs_core.model import Committable, HandleName, Inspection, JobState, Outcome, job_key
from abs_core.protocol import Changed, Refused, RunIdentity
from abs_core.registers import MemoryRegister
from abs_core.wal import FolderSegments, Seal, SegmentWriter, read_segment
from abs_testing.case import JOB, LEFT, Case, raises
from abs_testing.cuts import Cut
from abs_testing.engine import QUICK
from abs_testing.fakes.sink import HandleCommitter, TransactionCommitter
from tests.kit.fake_harness import open_fake

HANDLE = HandleName("0" * 16, JOB, 1, 0, 0, "abc")
START = JobState("0" * 16, JOB, "here", "lineage", 1, "run")


@pytest.fixture
def case() -> Iterator[Case]:
    with open_fake("2pc", "append", own_register=False) as harness, closing(Case(harness)) as case:
        yield case


def test_a_certificate_of_the_engine_that_does_not_match_is_refused_before_the_epoch(
    case: Case,
) -> None:
    run = case.run()
    run.epoch(0, LEFT)
    register, generation = run.state().register, run.state().generation
    run.coordinator.check_begun(Certificate(JOB, register, "there", generation, 0, 0))
    other = Certificate(JOB, "f" * 16, "there", generation, 0, 0)
    raises(RegisterLostError, lambda: case.run().coordinator.check_begun(other))


def test_a_loss_is_accepted_of_the_oldest_open_epoch_only(case: Case) -> None:
    case.halted(Cut("commit"), LEFT)
    run = case.run()
    run.begin(0)
    error = raises(ProtocolError, lambda: run.coordinator.accept_loss(7, []))
    assert "is epoch 0, not epoch 7" in error.what
    run.epoch(0, LEFT)
    error = raises(ProtocolError, lambda: run.coordinator.accept_loss(0, []))
    assert "is none, not epoch 0" in error.what


def _aborted(
    self: HandleCommitter, committables: Sequence[Committable]
) -> Mapping[HandleName, Outcome]:
    return {each.handle: Outcome.ABORTED for each in committables}


def test_a_consent_that_names_other_handles_than_are_lost_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    halted = case.halted(Cut("commit"), LEFT)
    before = halted.state()
    monkeypatch.setattr(HandleCommitter, "commit", _aborted)
    run = case.run()
    run.begin(0)
    error = raises(ProtocolError, lambda: run.coordinator.accept_loss(0, []))
    assert "1 handles of the decision are lost" in error.what
    assert run.state().open == before.open


def test_a_handle_that_is_prepared_though_it_was_given_up_keeps_its_decision(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    halted = case.halted(Cut("commit"), LEFT)
    decision = halted.state().open[0]

    def prepared(
        self: HandleCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Inspection]:
        return {each.handle: Inspection(Outcome.PREPARED) for each in committables}

    monkeypatch.setattr(HandleCommitter, "commit", _aborted)
    monkeypatch.setattr(HandleCommitter, "inspect", prepared)
    run = case.run()
    run.begin(0)
    error = raises(
        ProtocolError, lambda: run.coordinator.accept_loss(0, list(decision.committables))
    )
    assert "still prepared; nothing is recorded" in error.what
    assert run.state().open == (decision,)


def test_a_register_that_goes_back_behind_its_certificate_is_refused_before_the_decision(
    case: Case,
) -> None:
    certificates = MemoryCertificates()
    case.run(certificates=certificates).epoch(0, LEFT)
    run = case.run(certificates=certificates)
    shares = run.tasks(1, LEFT)
    kept = run.state()
    certificates.certificate = Certificate(JOB, "f" * 16, "there", 9, 9, 9)
    raises(RegisterLostError, lambda: run.commit(1, shares))
    assert run.state() == kept


def test_a_loss_is_not_accepted_where_there_is_no_register(case: Case) -> None:
    error = raises(RegisterLostError, lambda: case.run().coordinator.accept_loss(0, []))
    assert "is missing" in error.what


class ReadOnly(MemoryRegister):
    """A register that takes no change."""

    def compare_and_set(self, *_: object, **__: object) -> Version | Conflict:
        raise RefusedError("the register cannot be written (on purpose)")


def test_a_batch_that_its_parent_record_cannot_note_is_not_committed() -> None:
    store = ReadOnly()
    job = job_key("nightly", "token")
    parent = ParentCertificates(store, job, "the target", QUICK)
    certificate = Certificate(job, "0" * 16, "", 1, None, 0)
    error = raises(ProtocolError, lambda: parent.write(certificate))
    assert "could not be recorded in its job's parent record" in error.what
    assert "nothing of it is committed" in error.remedy
    assert parent.read().certificate is None


def test_rows_that_are_refused_anew_each_time_are_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = []

    def refusing(
        self: TransactionCommitter, committables: Sequence[Committable], *_: object
    ) -> Version | Conflict:
        judged.append(committables)
        raise RowsRefused(committables, "it says no")

    with open_fake("wal", "append") as harness, closing(Case(harness)) as case:
        run = case.run()
        run.epoch(0, LEFT)
        shares = run.tasks(1, LEFT)
        kept = run.state()
        monkeypatch.setattr(TransactionCommitter, "co_commit", refusing)
        error = raises(ContentionError, lambda: run.commit(1, shares))
        assert f"other rows each of {MAX_REFUSALS} times" in error.what
        assert error.what.endswith("At last: it says no")
        assert (len(judged), run.state()) == (MAX_REFUSALS, kept)


def test_a_job_that_goes_on_without_its_register_keeps_the_targets_of_its_sinks() -> None:
    """By consent, on another register that is there, whose sink of this name is elsewhere."""
    state = replace(START, sinks=sinkmap.first([("out", "there")]))
    origin = Origin(Certificate(JOB, "f" * 16, "there", 1, None, 0))
    who = RunIdentity(JOB, "lineage", "run2", "here", sinks=(("out", "elsewhere"),))
    consenting = replace(who, adopt=consent.to_go_on_without(origin, who, 0))
    verdict = births.start(state, consenting, "0" * 16, origin, 0, "there")
    assert isinstance(verdict, Refused)
    assert isinstance(verdict.error, IdentityError)
    same = replace(consenting, sinks=(("out", "there"),))
    assert isinstance(births.start(state, same, "0" * 16, origin, 0, "there"), Changed)


def test_a_committable_that_names_no_segment_is_not_read() -> None:
    error = raises(CorruptionError, lambda: Seal.of(Committable(HANDLE, 1, "d")))
    assert "does not give the length" in error.what


def test_a_segment_that_is_as_sealed_and_no_arrow_is_told_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments, batch = FolderSegments(tmp_path), pa.record_batch({"a": [1]})
    writer = SegmentWriter(segments, HANDLE, batch.schema)
    writer.write(batch)
    seal = writer.finish()
    assert seal is not None

    def invalid(*_: object) -> None:
        raise pa.ArrowInvalid("not a stream (on purpose)")

    monkeypatch.setattr("abs_core.wal.format.pa.ipc.open_stream", invalid)
    error = raises(CorruptionError, lambda: list(read_segment(segments, seal.committable())))
    assert "Arrow cannot read it" in error.what


@pytest.mark.parametrize("call", ["reach", "create", "open", "list"])
def test_a_folder_that_is_not_the_drivers_is_not_used(call: str, tmp_path: Path) -> None:
    segments = FolderSegments(tmp_path, "the driver's")
    given = [] if call == "reach" else [None if call == "list" else HANDLE]
    error = raises(RefusedError, lambda: getattr(segments, call)(*given))
    assert "is not the folder that the driver uses" in error.what
    assert not list(tmp_path.iterdir())


def test_an_epoch_after_a_gap_is_refused_where_nobody_allows_gaps(case: Case) -> None:
    case.run().epoch(0, LEFT)
    raises(EpochGapError, lambda: case.run().coordinator.begin(2))
    case.run().coordinator.begin(2, gaps_allowed=True)
