"""A target that goes back by itself at any step, explored: no run goes on without a word."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from abs_core.births import targets
from abs_core.lookback import LookedBack, Past
from abs_core.model import Decision, HandleName, JobState, Shown
from abs_core.protocol import Changed, Verdict
from tests.model.exhaustive import Violated
from tests.model.exhaustive.going_back import each_epoch, marks_of, newest_epoch
from tests.model.exhaustive.loss import Ways
from tests.model.exhaustive.losses import explore_losses

EACH = Ways(losses=0, backs=1, consents=1, looks=each_epoch)
"""What is prepared outlives it, and each epoch's mark stays: Kafka, tables of the lake."""

NEWEST = replace(EACH, looks=newest_epoch, vanish=True)
"""What is prepared goes back with it, and only the newest marker stays: PostgreSQL."""


def _of_that_moment(decision: Decision, visible: Collection[HandleName]) -> Sequence[Shown]:
    newest = max(visible, default=min(decision.handles))
    told = f"{newest.generation} {newest.epoch}"
    return [replace(each, mark=told) for each in marks_of(decision, visible)]


def _only_the_newest(past: Past, visible: Collection[HandleName]) -> Sequence[LookedBack]:
    return each_epoch(replace(past, noted=past.noted[-1:]) if past.running else past, visible)


def _again_and_again(
    before: JobState | None, verdict: Verdict, looks: Sequence[LookedBack]
) -> Verdict:
    """The consent leaves the marks of what is gone."""
    return verdict


def _all_forgotten(
    before: JobState | None, verdict: Verdict, looks: Sequence[LookedBack]
) -> Verdict:
    """The consent forgets the marks of what is there, too."""
    if not looks or not isinstance(verdict, Changed):
        return targets.consented(before, verdict, looks)
    noted = {(each.epoch, shown.sink) for each in verdict.state.recent for shown in each.shown}
    return Changed(targets.without(verdict.state, noted))


WRONG = {
    "no look before a decision": replace(NEWEST, on_the_way=False),
    "a look at the newest epoch only": replace(EACH, looks=_only_the_newest),
    "a mark of what is there at that moment": replace(NEWEST, marks=_of_that_moment),
    "consent that leaves the marks": replace(EACH, consented=_again_and_again),
    "consent that forgets all marks": replace(EACH, consented=_all_forgotten, backs=2, runs=4),
    "only the newest marker, where what is prepared outlives it": replace(NEWEST, vanish=False),
}


@pytest.mark.parametrize(
    "ways",
    [
        EACH,
        NEWEST,
        replace(EACH, several=True),
        replace(NEWEST, several=True),
        replace(EACH, gaps=True, consents=0),
        replace(EACH, backs=2, runs=4),
    ],
)
def test_a_target_that_goes_back_at_any_step_is_told(ways: Ways) -> None:
    states = explore_losses(ways, limit=200_000)
    print(states)
    assert states > 1000


@pytest.mark.campaign
@pytest.mark.parametrize(
    "ways",
    [
        replace(EACH, backs=2, runs=5, epochs=4, consents=2),
        replace(NEWEST, backs=2, runs=5, epochs=4, consents=2),
        replace(EACH, backs=2, runs=4, several=True, consents=2),
        replace(EACH, unheard=1, backs=2),
    ],
)
def test_larger_explorations(ways: Ways) -> None:
    print(explore_losses(ways, limit=5_000_000))


@pytest.mark.parametrize("name", WRONG)
def test_the_exploration_finds(name: str) -> None:
    with pytest.raises(Violated, match=r"nobody was told|nothing was lost") as found:
        explore_losses(WRONG[name], limit=1_000_000)
    print(found.value)
