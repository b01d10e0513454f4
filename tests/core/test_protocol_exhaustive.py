"""No interleaving of the model breaks an invariant; every one can still be brought to its end."""

from __future__ import annotations

import pytest

from tests import sample
from tests.model.exhaustive import Configuration, explore
from tests.model.exhaustive.configurations import CAMPAIGN, DEFAULT

SAMPLED = 5
"""In the sample; the campaign explores the others, and the large ones."""


@pytest.mark.parametrize(
    "config", sample.members(DEFAULT, SAMPLED, "exhaustive"), ids=lambda config: config.name
)
def test_no_interleaving_breaks_an_invariant(config: Configuration) -> None:
    explored = explore(config)
    print(explored)
    assert explored.states > 1000, "the model does too little to prove anything"


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("config", CAMPAIGN, ids=lambda config: config.name)
def test_no_interleaving_of_a_large_model_breaks_an_invariant(config: Configuration) -> None:
    print(explore(config))


@pytest.mark.long
def test_hashes_tell_all_states_apart_where_it_was_looked_at() -> None:
    config = DEFAULT[1]
    hashed, exact = explore(config), explore(config, exact=True)
    assert (hashed.states, hashed.transitions) == (exact.states, exact.transitions)
