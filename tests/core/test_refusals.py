"""Rules of a target that refuses after pre-commit: the fakes keep them, planted bugs are found."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest

from abs_core.coordinator.rollforward import RollForward
from abs_core.errors import RefusedError
from abs_core.model import Committable, Decision, JobState, Outcome
from abs_testing import run_check
from abs_testing.case import LEFT, MORE, RIGHT, Case, raises
from abs_testing.checks import CHECKS
from abs_testing.fakes.sink import HandleCommitter
from tests.kit.fake_harness import open_fake
from tests.kit.refusing_fake import open_refusing
from tests.planted import planted

RULES = {check.rule: check for check in CHECKS}
NOT_DECIDED = RULES["what_a_target_no_longer_takes_is_not_decided"]
BY_CONSENT = RULES["a_decided_handle_that_its_target_refuses_ends_by_consent"]
NOT_FINAL = RULES["a_loss_that_cannot_be_made_final_is_not_recorded"]


class Trusting(HandleCommitter):
    """Planted bug: it composes without asking."""

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        return committables


def test_a_sink_that_rehearses_decides_nothing_that_its_target_refuses() -> None:
    assert run_check(open_refusing, NOT_DECIDED)


def test_a_sink_that_decides_without_a_rehearsal_is_found() -> None:
    with pytest.raises(AssertionError, match="this one refuses"):
        run_check(lambda: open_refusing(Trusting), NOT_DECIDED)


def test_a_loss_that_is_recorded_and_not_made_final_is_found() -> None:
    def accept_loss(
        self: RollForward, decision: Decision, consented: Sequence[Committable]
    ) -> JobState:
        return self._finish(decision)

    for rule in (BY_CONSENT, NOT_FINAL):
        with planted((RollForward, "accept_loss", accept_loss), match=rule.rule):
            run_check(lambda: open_fake("2pc", "append"), rule)


def test_a_loss_whose_handle_is_still_prepared_is_not_recorded() -> None:
    aborts_nothing = (HandleCommitter, "abort", lambda self, handles: None)
    with planted(aborts_nothing, match="still prepared; nothing is recorded"):
        run_check(lambda: open_fake("2pc", "append"), BY_CONSENT)


def test_of_several_handles_only_the_refused_one_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    right = HandleCommitter._apply

    def apply(self: HandleCommitter, db: sqlite3.Connection, committable: Committable) -> None:
        if committable.handle.partition == 0:
            raise RefusedError("The target refuses it (on purpose).", handle=committable.handle)
        right(self, db, committable)

    with open_fake("2pc", "append", own_register=False) as harness, closing(Case(harness)) as case:
        monkeypatch.setattr(HandleCommitter, "_apply", apply)
        run = case.run()
        raises(RefusedError, lambda: run.epoch(0, LEFT, RIGHT))
        (loss,) = run.coordinator.lost(0)
        assert (loss.committable.handle.partition, loss.outcome) == (0, Outcome.PREPARED)
        assert "on purpose" in str(loss.refusal)
        run.coordinator.accept_loss(0, [loss.committable])
        monkeypatch.setattr(HandleCommitter, "_apply", right)
        case.run().epoch(1, MORE)
        case.finished(RIGHT, MORE, when="after the loss of the other handle was accepted")
