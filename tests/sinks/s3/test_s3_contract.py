"""The sink keeps the contract, in every protocol, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import product

import pytest

from abs_core.crash import CrashPoint
from abs_sinks.s3.testing import FolderHarness
from abs_testing import check_sink, run_check
from abs_testing.check_crashes import ForkServer, Killed, check_crash_pairs, check_crashes
from abs_testing.checks import CHECKS, refusals
from abs_testing.rules import checks_in
from tests import sample
from tests.kit.crash_points import CO_COMMIT, TWO_STEP, WORST

pytestmark = pytest.mark.services

AT_ONCE = 6
"""Rules wait for the server most of the time; each has a folder, with a register, of its own."""

SAMPLED_POINTS = 2
"""Of each protocol, in the sample; the campaign tries every point."""

Opener = Callable[[], AbstractContextManager[FolderHarness]]

POINTS = {
    "2pc": set(CrashPoint) - CO_COMMIT,
    # What is composed of so few rows is one file.
    "wal": set(CrashPoint) - CO_COMMIT - {CrashPoint.BETWEEN_COMMITS},
    "idempotent": set(CrashPoint) - TWO_STEP,
}
"""The points that a job of this protocol passes."""


@pytest.fixture(scope="module")
def fork_server(store: object) -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


def test_the_sink_keeps_the_rules_of_the_day(opener: Opener, protocol: str) -> None:
    """Each rule is dealt to one of the protocols; where it does not apply it waits."""
    protocols = list(POINTS)
    dealt = sample.hand(CHECKS, protocols.index(protocol), len(protocols), "s3")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert sum(pool.map(lambda check: run_check(opener, check), dealt)) > 5


def test_the_sink_keeps_the_rules_of_a_target_that_refuses(opener: Opener) -> None:
    """Each of them in each way, each day: a decision that cannot be kept is never dealt away."""
    for check in checks_in(refusals):
        run_check(opener, check)


@pytest.mark.campaign
def test_the_sink_keeps_every_rule(opener: Opener) -> None:
    assert len(check_sink(opener, at_once=AT_ONCE)) > 30


@sample.cases(2)
def test_a_crash_at_the_points_of_the_day_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer, protocol: str
) -> None:
    """Of every point tests/sinks/postgres/test_pg_contract.py tries one way in the sample."""
    points = set(sample.cut(sorted(POINTS[protocol]), SAMPLED_POINTS, f"s3 {protocol}"))
    killed = check_crashes(opener, fork_server, 1, points)
    _report(killed)
    assert set(killed.points) == points


@pytest.mark.campaign
def test_a_crash_at_each_point_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer, protocol: str
) -> None:
    killed = check_crashes(opener, fork_server, passages=1)
    _report(killed)
    assert set(killed.points) == POINTS[protocol]


@pytest.mark.campaign
def test_a_crash_at_every_passage_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer
) -> None:
    _report(check_crashes(opener, fork_server))


@pytest.mark.campaign
def test_a_crash_while_recovering_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer, protocol: str
) -> None:
    points = sorted(POINTS[protocol].intersection(WORST))
    _report(check_crash_pairs(opener, fork_server, product(points, points)))


def _report(killed: Killed) -> None:
    print(f"{killed.histories} jobs, {killed.points.total()} kills, {len(killed.points)} points")
