"""The sink keeps the contract, in every protocol and write, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from abs_core.crash import CrashPoint
from abs_sinks.postgres.testing import VARIANTS, Variant
from abs_testing import Opener, check_sink, run_check
from abs_testing.check_crashes import ForkServer, Killed, check_crash_pairs, check_crashes
from abs_testing.checks import CHECKS, refusals
from abs_testing.rules import checks_in
from tests import sample
from tests.kit.crash_points import CO_COMMIT, TWO_STEP, WORST

pytestmark = pytest.mark.services
SAMPLED_PAIRS = 2
"""Of each variant, in the sample; the campaign tries every pair."""


BY_PROTOCOL_AND_WRITE = pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=() if variant.own_register else pytest.mark.campaign)
        for name, variant in VARIANTS.items()
    ],
    indirect=True,
)
"""With a register elsewhere the crashes pass through mostly the same code; they take long."""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


def test_the_sink_keeps_the_rules_of_the_day(opener: Opener, variant: Variant) -> None:
    """Each rule is dealt to a way with a register of the sink's own, and to one without."""
    ways = [each for each in VARIANTS.values() if each.own_register == variant.own_register]
    name = f"postgres {variant.own_register}"
    dealt = sample.hand(CHECKS, ways.index(variant), len(ways), name)
    assert sum([run_check(opener, check) for check in dealt]) > 3


def test_the_sink_keeps_the_rules_of_a_target_that_refuses(opener: Opener) -> None:
    """Each of them in each way, each day: a decision that cannot be kept is never dealt away."""
    for check in checks_in(refusals):
        run_check(opener, check)


@pytest.mark.campaign
def test_the_sink_keeps_every_rule(opener: Opener) -> None:
    assert len(check_sink(opener)) > 30


@BY_PROTOCOL_AND_WRITE
def test_a_crash_at_the_points_of_the_day_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer, variant: Variant
) -> None:
    """Each point in one of the ways that pass it, in another one on another day."""
    points = _points_of_the_day(variant)
    killed = check_crashes(opener, fork_server, 1, points)
    _report(killed)
    assert set(killed.points) == points


@pytest.mark.campaign
def test_a_crash_at_any_passage_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer, variant: Variant
) -> None:
    killed = check_crashes(opener, fork_server)
    _report(killed)
    assert set(killed.points) == _points_of(variant)


@sample.cases(2)
@BY_PROTOCOL_AND_WRITE
def test_a_crash_while_recovering_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer, variant: Variant
) -> None:
    points = sorted(WORST & _points_of(variant))
    pairs = sample.cut(product(points, points), SAMPLED_PAIRS, variant.name)
    _report(check_crash_pairs(opener, fork_server, pairs))


@pytest.mark.campaign
def test_each_pair_of_the_worst_crashes_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer, variant: Variant
) -> None:
    points = sorted(WORST & _points_of(variant))
    _report(check_crash_pairs(opener, fork_server, product(points, points)))


@pytest.mark.campaign
def test_a_crash_anywhere_while_recovering_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer
) -> None:
    _report(check_crash_pairs(opener, fork_server))


def _points_of_the_day(variant: Variant) -> set[CrashPoint]:
    ways = [each for each in VARIANTS.values() if each.own_register]
    able = {point: [each for each in ways if point in _points_of(each)] for point in CrashPoint}
    return {
        point for point, ways in able.items() if variant in sample.cut(ways, 1, f"postgres {point}")
    }


def _points_of(variant: Variant) -> set[CrashPoint]:
    """The points that a job of this variant passes."""
    if variant.protocol == "2pc":
        return set(CrashPoint) - CO_COMMIT
    if not variant.own_register:  # one handle is composed of all
        return set(CrashPoint) - CO_COMMIT - {CrashPoint.BETWEEN_COMMITS}
    points = set(CrashPoint) - TWO_STEP
    # Its tasks leave nothing that could be aborted.
    return points - {CrashPoint.BETWEEN_ABORTS} if variant.protocol == "idempotent" else points


def _report(killed: Killed) -> None:
    print(f"{killed.histories} jobs, {killed.points.total()} kills, {len(killed.points)} points")
