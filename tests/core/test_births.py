"""Birth certificates: when a register counts as lost, what consent allows, and what a file may hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from abs_core import consent, sinkmap
from abs_core.births import rules as births
from abs_core.births.rules import Failed
from abs_core.certificate import UNREADABLE, Certificate, Origin, from_text, to_text
from abs_core.contracts import Conflict, RegisterStore, Stored, Version
from abs_core.coordinator.cell import RegisterCell
from abs_core.coordinator.certifier import Certifier
from abs_core.errors import (
    CorruptionError,
    EpochGapError,
    FencedError,
    IdentityError,
    RefusedError,
    RegisterLostError,
)
from abs_core.events import ignore
from abs_core.model import Decision, JobState
from abs_core.protocol import Changed, Refused, RunIdentity, Unchanged, Verdict
from abs_core.registers import MemoryRegister
from abs_testing.case import raises
from abs_testing.engine import QUICK

ID, OTHER = "a" * 16, "b" * 16
WHO = RunIdentity("job", "lineage", "run2", "target", checkpoint="file://here/ck")
CERTIFICATE = Certificate("job", ID, "there", 3, 5, 6)
STATE = JobState(ID, "job", "target", "lineage", 3, "run1", ("run0",), frontier=8)


def started(
    state: JobState | None,
    who: RunIdentity = WHO,
    certificate: Certificate | None = CERTIFICATE,
    epoch: int = 9,
) -> Verdict:
    return births.start(state, who, OTHER, Origin(certificate), epoch, "here")


def error_of(verdict: Verdict) -> Exception:
    assert isinstance(verdict, Refused), verdict
    return verdict.error


def state_of(verdict: Verdict) -> JobState:
    assert isinstance(verdict, Changed), verdict
    return verdict.state


def test_a_register_that_goes_with_its_certificate_is_taken_over() -> None:
    taken = state_of(started(STATE))
    assert (taken.generation, taken.frontier, taken.checkpoint) == (4, 8, "file://here/ck")
    assert started(taken) == Unchanged(taken), "the other tasks of the run find it so"


@pytest.mark.parametrize(
    ("failed", "epoch", "last_decided", "refused"),
    [
        (None, 9, None, False),
        (7, 7, 6, False),  # it comes again
        (7, 5, 4, False),
        (7, 8, 7, False),  # it was decided after all
        (7, 9, 8, False),
        (7, 9, 7, True),  # and what comes after it was not
        (7, 8, 6, True),
        (7, 12, 6, True),
        (0, 1, None, True),
    ],
)
def test_an_epoch_that_failed_is_not_passed_over_but_by_consent(
    failed: int | None, epoch: int, last_decided: int | None, refused: bool
) -> None:
    state = None if last_decided is None else replace(STATE, frontier=last_decided)
    noted = None if failed is None else Failed(failed)
    verdict = births.passed_over(state, WHO, noted, epoch)
    assert (verdict is not None) == refused
    if verdict is None:
        return
    assert isinstance(verdict.error, EpochGapError)
    token = verdict.error.remedy.partition("adopt=")[2][:12]
    for who, at, still in (
        (replace(WHO, adopt=token), epoch, False),
        (replace(WHO, adopt=token), epoch + 1, True),
        (replace(WHO, adopt=token, lineage="other"), epoch, True),
        (replace(WHO, adopt="0" * 12), epoch, True),
    ):
        assert (births.passed_over(state, who, noted, at) is not None) == still


def test_an_epoch_that_was_written_in_part_is_not_passed_over_though_it_is_decided() -> None:
    state, noted = replace(STATE, frontier=7), Failed(7, partly=True)
    assert births.passed_over(state, WHO, noted, 7) is None
    refused = births.passed_over(state, WHO, noted, 8)
    assert refused is not None
    assert "Epoch 7 was written only in part" in refused.error.what
    token = refused.error.remedy.partition("adopt=")[2][:12]
    assert births.passed_over(state, replace(WHO, adopt=token), noted, 8) is None


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (None, "is not there"),
        (replace(STATE, register=OTHER), "is another one"),
        (replace(STATE, generation=2), "is older than it was (generation 2; 3"),
        (replace(STATE, frontier=4), "finished up to 4; 5 was"),
        (replace(STATE, frontier=0), "finished up to 0; 5 was"),
        (replace(STATE, frontier=None), "finished up to nothing; 5 was"),
        (replace(STATE, frontier=5), "decided up to 5; 6 was"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_register_that_does_not_go_with_its_certificate_is_lost(
    state: JobState | None, why: str
) -> None:
    error = error_of(started(state))
    assert isinstance(error, RegisterLostError)
    assert why in error.what
    assert "looked for at here" in error.what
    assert "it was at there" in error.what
    assert "restore the register" in error.remedy


def test_without_a_certificate_a_register_is_minted_at_any_epoch() -> None:
    assert state_of(started(None, certificate=None)).register == OTHER
    assert state_of(started(None, certificate=None)).generation == 1


def test_where_the_checkpoint_cannot_be_read_a_register_is_minted_for_the_first_epoch_only() -> (
    None
):
    assert isinstance(births.start(None, WHO, OTHER, UNREADABLE, 0, "here"), Changed)
    error = error_of(births.start(None, WHO, OTHER, UNREADABLE, 3, "here"))
    assert isinstance(error, RegisterLostError)
    token = consent.to_go_on_without(UNREADABLE, WHO, 3)
    assert f"adopt={token}" in error.remedy
    consenting = replace(WHO, adopt=token)
    assert isinstance(births.start(None, consenting, OTHER, UNREADABLE, 3, "here"), Changed)
    assert isinstance(births.start(STATE, WHO, OTHER, UNREADABLE, 9, "here"), Changed)


def test_the_epoch_that_was_about_to_be_decided_need_not_be_decided() -> None:
    """The run may have died between certificate and decision: then it comes again."""
    assert isinstance(started(replace(STATE, frontier=5), epoch=6), Changed)
    assert isinstance(started(replace(STATE, frontier=None), certificate=CERTIFICATE), Refused)
    first = Certificate("job", ID, "there", 1, None, 0)
    begun = replace(STATE, generation=1, frontier=None, superseded=())
    assert isinstance(started(begun, certificate=first, epoch=0), Changed)
    assert isinstance(started(begun, certificate=first, epoch=1), Refused)


def test_runs_that_have_decided_nothing_and_adoptions_make_no_register_older() -> None:
    """A job that was taken over, and back, counts anew; its own certificate comes with a decision."""
    back = replace(STATE, generation=5, frontier=None)
    assert isinstance(started(back, epoch=0), Changed)
    theirs = replace(STATE, generation=4, lineage="theirs", frontier=0)
    assert isinstance(error_of(started(theirs)), IdentityError)


def test_a_zombie_is_told_that_it_is_fenced() -> None:
    for state in (STATE, replace(STATE, register=OTHER)):
        assert isinstance(error_of(started(state, replace(WHO, run="run0"))), FencedError)


class TestConsent:
    def token(self, epoch: int = 9, who: RunIdentity = WHO, left_out: int | None = None) -> str:
        return consent.to_go_on_without(Origin(CERTIFICATE), who, epoch, left_out)

    def test_a_lost_register_is_minted_above_every_generation_before(self) -> None:
        consenting = replace(WHO, adopt=self.token())
        minted = state_of(started(None, consenting))
        assert (minted.register, minted.generation, minted.frontier) == (OTHER, 4, None)
        assert started(minted, consenting) == Unchanged(minted), "the other tasks of the run go on"
        again = state_of(started(minted, replace(consenting, run="run3")))
        assert again.generation == 5

    @pytest.mark.parametrize("lost", [None, replace(STATE, frontier=4)], ids=["gone", "older"])
    def test_a_job_of_named_sinks_goes_on_in_later_runs(self, lost: JobState | None) -> None:
        sinks = (("one", "here"), ("two", "there"))
        who = replace(WHO, target="here and there", sinks=sinks)
        if lost is not None:
            lost = replace(lost, target=who.target, sinks=sinkmap.first(sinks[:1]))
        token = self.token(who=who, left_out=None if lost is None else 5)
        begun = state_of(started(lost, replace(who, adopt=token)))
        assert list(sinkmap.numbers(begun)) == ["one", "two"]
        decided = replace(begun, frontier=9)
        later = Certificate("job", begun.register, "here", begun.generation, None, 9)
        state_of(started(decided, replace(who, run="run3"), later, epoch=10))

    def test_the_run_goes_on_at_later_epochs_with_the_certificate_that_it_began_with(self) -> None:
        consenting = replace(WHO, adopt=self.token())
        begun = replace(state_of(started(None, consenting)), frontier=9)
        assert started(begun, consenting, epoch=10) == Unchanged(begun)
        assert isinstance(
            error_of(started(begun, replace(consenting, run="run3"), epoch=10)), RegisterLostError
        )

    def test_an_older_register_forgets_its_frontier(self) -> None:
        consenting = replace(WHO, adopt=self.token(left_out=5))
        raised = state_of(started(replace(STATE, frontier=4), consenting))
        assert (raised.generation, raised.frontier, raised.register) == (4, None, ID)

    def test_a_register_of_an_older_generation_is_raised_above_the_certificate_s(self) -> None:
        older = replace(STATE, generation=1, superseded=())
        assert state_of(started(older, replace(WHO, adopt=self.token()))).generation == 4

    def test_epochs_that_an_older_register_does_not_have_are_named_and_need_their_own_token(
        self,
    ) -> None:
        older = replace(STATE, generation=2, frontier=4)
        text = str(error_of(started(older)))
        assert "would go on with epoch 9" in text
        assert "all of commits/ from 5 on and all of offsets/ above 5" in text
        assert "epochs 5 to 8 (4 in all) will never be written" in text
        assert isinstance(started(older, replace(WHO, adopt=self.token())), Refused)
        assert f"adopt={self.token(left_out=5)}" in text
        trimmed = str(error_of(started(older, epoch=5)))
        assert f"adopt={self.token(5)}." in trimmed
        assert "all rows of the epochs before 5, which will never be written again" in trimmed

    @pytest.mark.parametrize(
        "other",
        [
            replace(WHO, lineage="another"),
            replace(WHO, target="another"),
            replace(WHO, job="another"),
        ],
        ids=["lineage", "target", "job"],
    )
    def test_it_holds_for_one_lineage_target_and_job(self, other: RunIdentity) -> None:
        assert isinstance(started(None, replace(other, adopt=self.token())), Refused)

    def test_it_holds_for_one_epoch_and_one_certificate(self) -> None:
        consenting = replace(WHO, adopt=self.token())
        assert isinstance(started(None, consenting, epoch=10), Refused)
        later = replace(CERTIFICATE, generation=4)
        assert isinstance(started(None, consenting, certificate=later), Refused)

    def test_it_is_refused_while_the_register_holds_an_open_decision(self) -> None:
        opened = replace(STATE, frontier=3, open=(Decision("lineage", 4, 3, ()),))
        error = error_of(started(opened, replace(WHO, adopt=self.token(left_out=5))))
        assert isinstance(error, IdentityError)
        assert "abs in-doubt commit job" in error.remedy


class TestRenamed:
    def test_another_job_on_the_same_checkpoint_is_refused(self) -> None:
        for state in (None, replace(STATE, register=OTHER, job="new")):
            error = error_of(started(state, replace(WHO, job="new")))
            assert isinstance(error, IdentityError)
            assert "abs register rename job new" in error.remedy

    def test_what_was_moved_goes_on(self) -> None:
        assert isinstance(started(replace(STATE, job="new"), replace(WHO, job="new")), Changed)


class TestDeletedCheckpoint:
    BEFORE = replace(STATE, job="old", lineage="old", checkpoint=WHO.checkpoint)

    def test_another_lineage_from_the_same_place_is_refused(self) -> None:
        refused = births.begun_elsewhere([self.BEFORE], WHO, 0)
        assert refused is not None
        assert "job old" in refused.error.what
        assert "abs job reset old" in refused.error.remedy
        token = refused.error.remedy.split("adopt=")[1].rstrip(".")
        assert births.begun_elsewhere([self.BEFORE], replace(WHO, adopt=token), 0) is None
        assert births.begun_elsewhere([self.BEFORE], replace(WHO, adopt=token), 1) is not None

    @pytest.mark.parametrize(
        "other",
        [
            replace(BEFORE, checkpoint="file://here/another"),
            replace(BEFORE, checkpoint=None),
            replace(BEFORE, target="another"),
            replace(BEFORE, frontier=None),
            replace(BEFORE, lineage=WHO.lineage),
        ],
        ids=["checkpoint", "no checkpoint", "target", "nothing committed", "same lineage"],
    )
    def test_other_jobs_are_no_matter(self, other: JobState) -> None:
        assert births.begun_elsewhere([other], WHO, 0) is None
        unknown = replace(WHO, checkpoint=None)
        assert births.begun_elsewhere([self.BEFORE], unknown, 0) is None

    def test_what_it_has_decided_is_finished_first(self) -> None:
        opened = replace(self.BEFORE, open=(Decision("old", 9, 3, ()),))
        refused = births.begun_elsewhere([opened], WHO, 0)
        assert refused is not None
        assert "abs in-doubt commit old" in refused.error.remedy
        assert "adopt=" not in refused.error.remedy


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        (None, True),
        (replace(STATE, register=OTHER), True),
        (replace(STATE, generation=2), True),
        (replace(STATE, frontier=7), True),
        (replace(STATE, frontier=None), True),
        (STATE, False),
        (replace(STATE, frontier=7, open=(Decision("lineage", 8, 3, ()),)), True),
        (replace(STATE, open=(Decision("lineage", 9, 3, ()),)), False),
        (replace(STATE, generation=4, frontier=None, lineage="adopter"), False),
    ],
)
def test_within_a_run_a_register_never_goes_back(now: JobState | None, lost: bool) -> None:
    assert (births.went_back(now, STATE) is not None) == lost


@pytest.mark.parametrize("frontier", [None, 0, 7])
def test_a_certificate_comes_back_as_it_was(frontier: int | None) -> None:
    certificate = replace(CERTIFICATE, frontier=frontier, place="☃ 'here'")
    assert from_text(to_text(certificate), "a file") == certificate


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        "null",
        "[]",
        "{}",
        to_text(CERTIFICATE)[:-5],
        to_text(CERTIFICATE).replace('"version":1', '"version":2'),
        to_text(CERTIFICATE).replace('"generation":3', '"generation":-1'),
        to_text(CERTIFICATE).replace('"generation":3', '"generation":true'),
        to_text(CERTIFICATE).replace('"deciding":6', '"deciding":null'),
        "[" * 100_000,
        f'{{"kind": "abs birth certificate", "version": {"9" * 10_000}}}',
    ],
    ids=range(12),
)
def test_what_is_no_certificate_is_refused(text: str | bytes) -> None:
    with pytest.raises(CorruptionError, match="at a file cannot be read") as raised:
        from_text(text, "a file")
    assert raised.value.remedy


class Beside(MemoryRegister):
    """A register in which another job has written to the target, from the same checkpoint."""

    asked = 0

    def others_on(self, target: str, job: str) -> Sequence[str]:
        self.asked += 1
        return ["old"]

    def load(self, job: str) -> Stored | None:
        return Stored(replace(STATE, job="old", lineage="old", checkpoint=WHO.checkpoint), "1")


class Alone(RegisterStore):
    """A register that lists no jobs."""

    def load(self, job: str) -> Stored | None:
        return None

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        raise NotImplementedError


def around(
    store: RegisterStore, who: RunIdentity = WHO, is_empty: Callable[[], bool] = lambda: False
) -> Certifier:
    cell = RegisterCell(store, who.job, QUICK)
    return Certifier(who, cell, store, None, is_empty, QUICK, ignore)


def test_a_job_without_a_checkpoint_or_a_list_of_jobs_looks_at_no_other_job() -> None:
    around(Alone()).look_around(0)
    store = Beside()
    around(store, replace(WHO, checkpoint=None)).look_around(0)
    assert store.asked == 0
    raises(IdentityError, lambda: around(store).look_around(0))
    around(store, is_empty=lambda: True).look_around(0)


def test_a_target_that_may_not_be_read_is_not_taken_for_empty() -> None:
    def refused() -> bool:
        raise RefusedError("may not read (on purpose)")

    raises(IdentityError, lambda: around(Beside(), is_empty=refused).look_around(0))


def test_a_run_that_begins_again_by_consent_fences_the_run_before_it() -> None:
    """On a register that is there, and is another one."""
    lost = replace(STATE, register=OTHER)
    adopt = consent.to_go_on_without(Origin(CERTIFICATE), WHO, 9)
    again = state_of(started(lost, replace(WHO, adopt=adopt)))
    assert again.superseded == (*STATE.superseded, STATE.run)
