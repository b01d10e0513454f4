"""Every history of a write of the user's own in a small world; see ``own_write_world``."""

from __future__ import annotations

import pytest

from tests.core.own_write_world import (
    CONDITION,
    ERASING,
    FENCE,
    LOOK_THEN_FENCE,
    UNCONDITIONAL,
    Configuration,
    Violated,
    explore,
)

SMALL = [
    Configuration(CONDITION, goes_back=True),
    Configuration(FENCE, goes_back=True),
    Configuration(CONDITION, runs=3, epochs=1),
    Configuration(CONDITION, loses=True),
]
LARGE = [
    Configuration(recipe, runs=3, epochs=epochs, loses=loses, goes_back=True)
    for recipe in (CONDITION, FENCE)
    for epochs in (1, 2)
    for loses in (False, True)
]


@pytest.mark.parametrize(
    "config", [*SMALL, *(pytest.param(each, marks=pytest.mark.campaign) for each in LARGE)]
)
def test_no_history_writes_an_epoch_twice_or_takes_it_for_written(config: Configuration) -> None:
    assert explore(config) > 1000


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (Configuration(CONDITION, kept=False), "epoch 0 is there 2 times"),
        (Configuration(UNCONDITIONAL), "epoch 0 is there 2 times"),
        (Configuration(ERASING), "a start is refused, and nothing was lost"),
        (Configuration(LOOK_THEN_FENCE), "epoch 0 is there 2 times"),
        (
            Configuration(CONDITION, runs=3, epochs=1, loses=True, certified=False),
            "epoch 0 is there 2 times",
        ),
    ],
    ids=[
        "version-of-the-present-generation",
        "token-not-compared",
        "fence-erases-what-was-applied",
        "write-lands-between-look-and-fence",
        "certificate-ignored",
    ],
)
def test_a_planted_bug_is_found(config: Configuration, found: str) -> None:
    with pytest.raises(Violated, match=found):
        explore(config)
