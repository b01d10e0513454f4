"""The sink keeps the contract, in every protocol, on a real server."""

from __future__ import annotations

from itertools import product

import pytest

from abs_core.crash import CrashPoint
from abs_testing.checks import CHECKS
from tests import sample
from tests.kit.crash_points import CO_COMMIT, TWO_STEP, WORST
from tests.sinks.contract import *  # noqa: F403 - the tests
from tests.sinks.contract import Way, in_each

pytestmark = pytest.mark.services

POINTS = {
    "2pc": frozenset(CrashPoint) - CO_COMMIT,
    # What is composed of so few rows is one file.
    "wal": frozenset(CrashPoint) - CO_COMMIT - {CrashPoint.BETWEEN_COMMITS},
    "idempotent": frozenset(CrashPoint) - TWO_STEP,
}
"""The points that a job of this protocol passes."""
CRASHED = sample.cut(POINTS, 2, "s3, crashes")
"""In the sample; of every point tests/sinks/postgres/test_pg_contract.py tries one way."""


def way_of(protocol: str) -> Way:
    rules = sample.hand(CHECKS, list(POINTS).index(protocol), len(POINTS), "s3")
    points = sample.cut(sorted(POINTS[protocol]), 2, f"s3 {protocol}")
    crashes = frozenset(points) if protocol in CRASHED else frozenset()
    worst = sorted(WORST & POINTS[protocol])
    pairs = sample.cut(product(worst, worst), 1, f"s3 {protocol}") if crashes else []
    return Way(protocol, rules, POINTS[protocol], crashes, tuple(pairs), at_once=6)


pytest_generate_tests = in_each([way_of(protocol) for protocol in POINTS])


@pytest.fixture
def protocol(way: Way) -> str:
    return way.name
