"""The rules of a start: who may run the job, and what each run may adopt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from abs_core import consent, protocol
from abs_core.errors import FencedError, IdentityError
from abs_core.model import MAX_SUPERSEDED, Recent
from abs_core.protocol import Changed, Unchanged, Write
from tests.core.protocol_values import REGISTER, WHO, adopting, changed, decision, refused, state


class TestStart:
    def test_the_first_run_mints_the_register(self) -> None:
        assert protocol.start(None, WHO, REGISTER) == Changed(state())

    def test_a_run_raises_the_generation_once(self) -> None:
        second = changed(protocol.start(state(), replace(WHO, run="run2"), "b" * 16))
        assert (second.generation, second.run, second.superseded) == (2, "run2", ("run1",))
        assert second.register == REGISTER
        again = protocol.start(second, replace(WHO, run="run2"), "b" * 16)
        assert again == Unchanged(second)

    def test_a_superseded_run_is_fenced_for_as_long_as_it_is_remembered(self) -> None:
        given = state()
        for number in range(2, MAX_SUPERSEDED + 2):
            given = changed(protocol.start(given, replace(WHO, run=f"run{number}"), REGISTER))
        assert isinstance(refused(protocol.start(given, WHO, REGISTER)), FencedError)
        given = changed(protocol.start(given, replace(WHO, run="one more"), REGISTER))
        assert len(given.superseded) == MAX_SUPERSEDED
        assert "run1" not in given.superseded

    def test_a_new_run_may_try_again_what_was_abandoned(self) -> None:
        given = state(abandoned=(3,))
        assert changed(protocol.start(given, replace(WHO, run="run2"), REGISTER)).abandoned == ()

    @pytest.mark.parametrize("other", [{"lineage": "other"}, {"target": "other"}])
    def test_another_identity_is_refused_and_told_how_to_adopt(self, other: dict[str, Any]) -> None:
        stranger = replace(WHO, run="run2", **other)
        error = refused(protocol.start(state(), stranger, REGISTER))
        assert isinstance(error, IdentityError)
        token = consent.to_adopt(state(), stranger, 0)
        assert f"adopt={token}" in error.remedy
        adopted = changed(protocol.start(state(), replace(stranger, adopt=token), REGISTER))
        assert (adopted.lineage, adopted.target) == (stranger.lineage, stranger.target)

    def test_an_adopted_lineage_counts_its_epochs_anew_and_keeps_open_decisions(self) -> None:
        given = state(frontier=7, open=(decision(8),), recent=(Recent(8, None, 5),))
        who = adopting(given, replace(WHO, lineage="new", run="run2"))
        adopted = changed(protocol.start(given, who, REGISTER))
        assert (adopted.frontier, adopted.recent, adopted.open) == (None, (), given.open)
        assert adopted.last_decided is None
        assert protocol.plan(adopted, 2, 0) == Write()

    def test_a_job_that_moves_to_another_target_keeps_its_epochs(self) -> None:
        given = state(frontier=7)
        who = adopting(given, replace(WHO, target="new", run="run2"))
        assert changed(protocol.start(given, who, REGISTER)).frontier == 7

    def test_a_job_with_open_decisions_does_not_move_to_another_target(self) -> None:
        given = state(open=(decision(0),))
        who = adopting(given, replace(WHO, target="new", run="run2"))
        error = refused(protocol.start(given, who, REGISTER))
        assert isinstance(error, IdentityError)
        assert "old target" in error.remedy

    def test_a_consent_to_adopt_does_not_outlive_the_run_it_was_given_for(self) -> None:
        thief = adopting(state(), replace(WHO, lineage="new", run="run2"))
        stolen = changed(protocol.start(state(), thief, REGISTER))
        back = adopting(stolen, replace(WHO, run="run3"))
        taken_back = changed(protocol.start(stolen, back, REGISTER))
        restarted = replace(thief, run="run4")
        assert isinstance(refused(protocol.start(taken_back, restarted, REGISTER)), IdentityError)

    @pytest.mark.parametrize(
        "other",
        [{"lineage": "another"}, {"target": "another"}, {"epoch": 77}],
        ids=["lineage", "target", "epoch"],
    )
    def test_a_consent_to_adopt_holds_for_one_lineage_target_and_epoch(
        self, other: dict[str, Any]
    ) -> None:
        epoch = other.pop("epoch", 7)
        consenting = adopting(state(), replace(WHO, lineage="new", run="run2"), 7)
        stranger = replace(consenting, **other)
        verdict = protocol.start(state(), stranger, REGISTER, epoch)
        assert isinstance(refused(verdict), IdentityError)
        assert changed(protocol.start(state(), consenting, REGISTER, 7)).lineage == "new"

    def test_a_run_knows_whether_it_has_started(self) -> None:
        given = state(superseded=("run0",))
        assert protocol.has_started(given, WHO)
        assert protocol.has_started(given, replace(WHO, run="run0"))
        assert not protocol.has_started(given, replace(WHO, run="run2"))
        assert not protocol.has_started(None, WHO)
