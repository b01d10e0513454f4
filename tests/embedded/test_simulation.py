"""Thousands of random histories, and proof that they can fail."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import chain, product

import pytest

from abs_core.barriers.alignment import STRATEGIES, SnapshotStrategy
from abs_core.errors import AbsError
from tests import sample
from tests.embedded.planted_bugs import PLANTED
from tests.embedded.planted_idle_bugs import PLANTED_IDLE
from tests.embedded.planted_lease_bugs import PLANTED_LEASE
from tests.embedded.planted_order_bugs import PLANTED_ORDER
from tests.model.simulation import Outcome, simulate, simulate_leaders
from tests.model.simulation.run import Bugs

HISTORIES = 200
"""The run's seed is the number of the first."""
ORDERED = 12
"""Of these, too."""
PAUSING = 60
"""And of these."""
LED = 60
"""And of two processes and their lease."""
SEARCHED = 1_000
"""Histories in which a planted bug must be found."""
SHOWN_BY = {
    "no alignment: copies at the last barrier": 115,
    "barrier after unblock": 75,
    "back-edge log dropped": 251,
    "log not replayed": 115,
    "newest record restored": 40,
    "stale source positions": 79,
    "splits move, and overtake": 93,
    "acknowledgements of old attempts count": 491,
    "handles of all regions are discarded": 102,
    "a hung task goes on later": 128,
    "no wait for the log after rescaling": 140,
    "logs dealt out in turn": 57,
    "no wait for the log after a plain restart": 2974,
    "no checkpoint between the log and what is new": 403,
}
"""A seed that shows it, of those that few histories show; the search begins with it.

Where it does so no more, the search goes on as for any other.
"""
SLICES = 2


RARE = (
    "no wait for the log after a plain restart",
    "no checkpoint between the log and what is new",
)
"""Of those that the order of each key shows, what only hasty histories show.

``test_key_order_on_threads`` finds them in ``make test``, too.
"""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Histories tell of each checkpoint that fails: tens of thousands of lines, kept for nothing."""
    caplog.set_level(logging.ERROR, "abs_embedded")


def check(seeds: range) -> list[Outcome]:
    outcomes = [simulate(seed) for seed in seeds]
    wrong = [f"simulate({o.seed}): {o.strategy}: {o.wrong}" for o in outcomes if o.wrong]
    assert not wrong, "\n".join(wrong)
    return outcomes


@pytest.mark.parametrize("part", range(SLICES))
def test_every_history_ends_as_if_nothing_had_failed(part: int) -> None:
    size = HISTORIES // SLICES
    first = sample.seed() * HISTORIES + part * size
    outcomes = check(range(first, first + size))
    seen = Counter((o.strategy, o.loops) for o in outcomes)
    for name, strategy in STRATEGIES.items():
        assert seen[name, False] > size / 20, "every strategy is under test"
        assert not strategy.cycles or seen[name, True] > size / 40, (
            "and loops with every one that can"
        )
    assert sum(o.crashes for o in outcomes) > size / 2
    assert sum(o.checkpoints for o in outcomes) > size


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_every_history_of_the_campaign(part: int) -> None:
    check(range(100_000 + part * 5_000, 100_000 + (part + 1) * 5_000))


def test_a_seed_is_one_history() -> None:
    assert [simulate(seed) for seed in range(20)] == [simulate(seed) for seed in range(20)]


def search(bug: str) -> Iterator[int]:
    """The seeds in which to look for a planted bug: first the one that has shown it before."""
    shown = SHOWN_BY.get(bug)
    return chain(() if shown is None else (shown,), range(SEARCHED))


def is_found(bug: str, strategy: SnapshotStrategy, bugs: Bugs, *, pausing: bool = False) -> bool:
    for seed in search(bug):
        try:
            if simulate(seed, strategy, bugs, pausing=pausing).wrong:
                return True
        except (AbsError, KeyError):
            return True
    return False


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert is_found(bug, *PLANTED[bug]), f"{SEARCHED} histories do not show: {bug}"


@pytest.mark.parametrize("bug", PLANTED_IDLE)
def test_a_planted_bug_is_found_by_splits_that_pause(bug: str) -> None:
    assert is_found(bug, *PLANTED_IDLE[bug], pausing=True), (
        f"{SEARCHED} histories do not show: {bug}"
    )


def shows(bug: str, seed: int) -> bool:
    """Whether the history of this seed has records of a key in the wrong order."""
    strategy, bugs = PLANTED_ORDER[bug]
    return "comes after" in simulate(seed, strategy, bugs, ordered=True, hasty=bug in RARE).wrong


@pytest.mark.parametrize("bug", PLANTED_ORDER)
def test_a_planted_bug_is_found_by_the_order_of_each_key(bug: str) -> None:
    assert any(shows(bug, seed) for seed in search(bug)), (
        f"{SEARCHED} histories do not show: {bug}; `make campaign` looks in more, and names the seed"
    )


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bug", PLANTED_ORDER)
def test_a_seed_that_shows_a_planted_bug_by_order_can_be_found(bug: str) -> None:
    """For ``SHOWN_BY``, whose seeds are other histories once the simulation is changed."""
    seed = next((seed for seed in range(20_000) if shows(bug, seed)), None)
    assert seed is not None
    print(f"{bug}: {seed}")


def test_windows_go_on_over_idle_splits_and_nothing_of_those_that_come_back_is_late() -> None:
    first = sample.seed() * PAUSING
    paused(range(first, first + PAUSING))


@pytest.mark.campaign
def test_windows_go_on_over_idle_splits_in_many_histories() -> None:
    paused(range(5_000))


def paused(seeds: range) -> None:
    for seed in seeds:
        outcome = simulate(seed, pausing=True)
        assert not outcome.wrong, f"simulate({seed}, pausing=True): {outcome.wrong}"


def test_each_key_keeps_its_order_over_crashes_and_rescaling() -> None:
    first = sample.seed() * ORDERED
    in_order(range(first, first + ORDERED))


@pytest.mark.campaign
def test_each_key_keeps_its_order_in_many_histories() -> None:
    in_order(range(1_000))


def in_order(seeds: range) -> None:
    kinds = ("aligned", False), ("unaligned", False), ("unaligned", True)
    for seed, (name, hasty) in product(seeds, kinds):
        outcome = simulate(seed, STRATEGIES[name], ordered=True, hasty=hasty)
        assert not outcome.wrong, f"simulate({seed}, {name}, hasty={hasty}): {outcome.wrong}"


def test_a_job_of_two_processes_is_led_by_one_and_ends_exactly_once() -> None:
    first = sample.seed() * LED
    led(range(first, first + LED))


@pytest.mark.campaign
def test_a_job_of_two_processes_ends_exactly_once_in_many_histories() -> None:
    led(range(5_000))


def led(seeds: range) -> None:
    for seed in seeds:
        outcome = simulate_leaders(seed)
        assert not outcome.wrong, f"simulate_leaders({seed}): {outcome.wrong}"


@pytest.mark.parametrize("bug", PLANTED_LEASE)
def test_a_planted_bug_is_found_by_two_leaders(bug: str) -> None:
    lease, bugs = PLANTED_LEASE[bug]
    assert any(simulate_leaders(seed, bugs, lease).wrong for seed in range(SEARCHED)), (
        f"{SEARCHED} histories do not show: {bug}"
    )
