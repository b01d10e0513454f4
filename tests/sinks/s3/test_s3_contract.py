"""The sink keeps the contract, in every protocol, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import product

import pytest

from abs_core.crash import CrashPoint
from abs_core.testing import check_sink
from abs_core.testing.check_crashes import ForkServer, Killed, check_crash_pairs, check_crashes
from abs_core.testing.crash_points import CO_COMMIT, TWO_STEP, WORST
from abs_sinks.s3.testing import FolderHarness

pytestmark = pytest.mark.services

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


def test_the_sink_keeps_every_rule(opener: Opener) -> None:
    # They wait for the server most of the time; each has a folder, with a register, of its own.
    assert len(check_sink(opener, at_once=6)) > 30


@pytest.mark.parametrize(
    "protocol",
    ["2pc", *(pytest.param(way, marks=pytest.mark.campaign) for way in ("wal", "idempotent"))],
    indirect=True,
)
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
