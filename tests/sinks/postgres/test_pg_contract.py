"""The sink keeps the contract, in every protocol and write, on a real server."""

from __future__ import annotations

from itertools import product

import pytest

from abs_core.crash import CrashPoint
from abs_sinks.postgres.testing import VARIANTS, Variant
from abs_testing import ForkServer, Opener, check_crash_pairs
from abs_testing.checks import CHECKS
from tests import sample
from tests.kit.crash_points import CO_COMMIT, TWO_STEP, WORST
from tests.sinks.contract import *  # noqa: F403 - the tests
from tests.sinks.contract import Way, in_each

pytestmark = pytest.mark.services

CRASHED = [variant for variant in VARIANTS.values() if variant.own_register]
"""In the sample. With a register elsewhere the crashes pass through mostly the same code."""
RECOVERED = sample.cut(CRASHED, 2, "postgres, pairs of crashes")


def points_of(variant: Variant) -> frozenset[CrashPoint]:
    """The points that a job of this variant passes."""
    if variant.protocol == "2pc":
        return frozenset(CrashPoint) - CO_COMMIT
    if not variant.own_register:  # one handle is composed of all
        return frozenset(CrashPoint) - CO_COMMIT - {CrashPoint.BETWEEN_COMMITS}
    points = frozenset(CrashPoint) - TWO_STEP
    # Its tasks leave nothing that could be aborted.
    return points - {CrashPoint.BETWEEN_ABORTS} if variant.protocol == "idempotent" else points


def way_of(variant: Variant) -> Way:
    """Each rule is dealt to a way with a register of the sink's own, and to one without; each point to
    one of the ways that pass it."""
    alike = [each for each in VARIANTS.values() if each.own_register == variant.own_register]
    of = f"postgres {variant.own_register}"
    able = {p: [each for each in CRASHED if p in points_of(each)] for p in CrashPoint}
    points = points_of(variant)
    worst = sorted(WORST & points)
    return Way(
        variant.name,
        sample.hand(CHECKS, alike.index(variant), len(alike), of),
        points,
        frozenset(p for p, ways in able.items() if variant in sample.cut(ways, 1, f"postgres {p}")),
        tuple(sample.cut(product(worst, worst), 2, variant.name)) if variant in RECOVERED else (),
    )


pytest_generate_tests = in_each([way_of(variant) for variant in VARIANTS.values()])


@pytest.fixture
def variant(way: Way) -> Variant:
    return VARIANTS[way.name]


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_crash_anywhere_while_recovering_loses_and_doubles_nothing(
    opener: Opener, way: Way
) -> None:
    with ForkServer() as fork_server:
        check_crash_pairs(opener, fork_server)
