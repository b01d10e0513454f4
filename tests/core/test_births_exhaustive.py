"""A register that vanishes or goes back at any step doubles no epoch; wrong ways are found to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abs_core import births, protocol
from abs_core.certificate import Certificate, Origin
from abs_core.model import JobState
from abs_core.protocol import Identity, Verdict
from tests.model.exhaustive import Violated
from tests.model.exhaustive.losses import Ways, explore_losses


def _mint_again(
    state: JobState | None, who: Identity, register: str, origin: Origin, epoch: int, place: str
) -> Verdict:
    """What is not there, or went back, is taken as it is."""
    return protocol.start(state, who, register)


def _without_deciding(state: JobState, place: str, deciding: int) -> Certificate:
    return replace(births.certify(state, place, deciding), deciding=10**9)


WRONG = {
    "mint again": Ways(start=_mint_again),
    "certificate after the first decision": Ways(first=False),
    "certificate that does not name the epoch about to be decided": Ways(certify=_without_deciding),
}


def test_a_register_that_is_lost_at_any_step_doubles_no_epoch() -> None:
    states = explore_losses(Ways())
    print(states)
    assert states > 1000, "the model does too little to prove anything"


def test_nobody_is_refused_where_nothing_is_lost() -> None:
    assert explore_losses(Ways(losses=0, runs=4)) > 100


@pytest.mark.campaign
@pytest.mark.parametrize("ways", [Ways(losses=2), Ways(runs=4), Ways(epochs=4)])
def test_larger_explorations(ways: Ways) -> None:
    print(explore_losses(ways, limit=5_000_000))


@pytest.mark.parametrize("name", WRONG)
def test_the_exploration_finds(name: str) -> None:
    with pytest.raises(Violated, match="is visible 2 times") as found:
        explore_losses(WRONG[name])
    print(found.value)
