"""Thousands of random histories, and proof that they can fail."""

from __future__ import annotations

from collections import Counter

import pytest

from abs_core.errors import AbsError
from abs_core.runtime.alignment import STRATEGIES
from tests import daily
from tests.core.runtime.planted_bugs import PLANTED, PLANTED_ORDER, RARE
from tests.model.simulation import Outcome, simulate

HISTORIES = 600
"""Other ones each day: the day's seed is the number of the first."""
ORDERED = 40
"""Of these, too."""
SLICES = 2


def check(seeds: range) -> list[Outcome]:
    outcomes = [simulate(seed) for seed in seeds]
    wrong = [f"simulate({o.seed}): {o.way}: {o.wrong}" for o in outcomes if o.wrong]
    assert not wrong, "\n".join(wrong)
    return outcomes


@pytest.mark.parametrize("part", range(SLICES))
def test_every_history_ends_as_if_nothing_had_failed(part: int) -> None:
    size = HISTORIES // SLICES
    first = daily.seed() * HISTORIES + part * size
    outcomes = check(range(first, first + size))
    seen = Counter((o.way, o.loops) for o in outcomes)
    for name, way in STRATEGIES.items():
        assert seen[name, False] > size / 20, "every strategy is under test"
        assert not way.cycles or seen[name, True] > size / 40, "and loops with every one that can"
    assert sum(o.crashes for o in outcomes) > size / 2
    assert sum(o.checkpoints for o in outcomes) > size


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_every_history_of_the_campaign(part: int) -> None:
    check(range(100_000 + part * 5_000, 100_000 + (part + 1) * 5_000))


def test_a_seed_is_one_history() -> None:
    assert [simulate(seed) for seed in range(20)] == [simulate(seed) for seed in range(20)]


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    way, bugs = PLANTED[bug]
    for seed in range(1_000):
        try:
            if simulate(seed, way, bugs).wrong:
                return
        except (AbsError, KeyError):
            return
    pytest.fail(f"a thousand histories do not show: {bug}")


@pytest.mark.parametrize("bug", [bug for bug in PLANTED_ORDER if bug not in RARE])
def test_a_planted_bug_is_found_by_the_order_of_each_key(bug: str) -> None:
    assert is_out_of_order(bug, 1_000), f"a thousand histories do not show: {bug}"


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bug", RARE)
def test_a_rare_planted_bug_is_found_by_the_order_of_each_key(bug: str) -> None:
    assert is_out_of_order(bug, 10_000), f"ten thousand histories do not show: {bug}"


def is_out_of_order(bug: str, histories: int) -> bool:
    way, bugs = PLANTED_ORDER[bug]
    outcomes = (simulate(seed, way, bugs, ordered=True) for seed in range(histories))
    return any("comes after" in outcome.wrong for outcome in outcomes)


def test_each_key_keeps_its_order_over_crashes_and_rescaling() -> None:
    first = daily.seed() * ORDERED
    in_order(range(first, first + ORDERED))


@pytest.mark.campaign
def test_each_key_keeps_its_order_in_many_histories() -> None:
    in_order(range(1_000))


def in_order(seeds: range) -> None:
    for name in ("aligned", "unaligned"):
        for seed in seeds:
            outcome = simulate(seed, STRATEGIES[name], ordered=True)
            assert not outcome.wrong, f"simulate({seed}, {name}, ordered=True): {outcome.wrong}"
