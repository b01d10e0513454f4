"""Every crash point, under every protocol, by SIGKILL; and crashes while recovering from a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count, product
from pathlib import Path

import pytest

from abs_core.crash import CrashPoint
from abs_testing.check_crashes import ForkServer, Killed, check_crash_pairs, check_crashes
from tests import sample
from tests.kit.fake_harness import FakeHarness, open_fake

pytestmark = pytest.mark.long

Opener = Callable[[], AbstractContextManager[FakeHarness]]
KINDS = {
    "2pc-append": ("2pc", "append", True),
    "2pc-append-foreign-register": ("2pc", "append", False),
    "wal-append": ("wal", "append", True),
    "wal-upsert-foreign-register": ("wal", "upsert", False),
    "idempotent-upsert": ("idempotent", "upsert", True),
}


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


@pytest.fixture
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return _opener(request.param, tmp_path)


def _opener(kind: str, folder: Path) -> Opener:
    protocol, write, own = KINDS[kind]
    numbers = count()

    @contextmanager
    def fresh() -> Iterator[FakeHarness]:
        path = folder / f"{kind}-{next(numbers)}.sqlite"
        with open_fake(protocol, write, own_register=own, path=path) as harness:
            yield harness
        path.unlink()

    return fresh


def _count(killed: Killed) -> None:
    print(f"{killed.histories} jobs, {killed.points.total()} kills, {len(killed.points)} points")


ALL = pytest.mark.parametrize("opener", KINDS, indirect=True)
PAIRS = list(product(CrashPoint, CrashPoint))
SAMPLED_PAIRS = 12
"""Of each protocol, in the sample; in the campaign each protocol tries every pair."""


@sample.cases(2)
@ALL
def test_a_crash_at_any_point_loses_and_doubles_nothing(
    opener: Opener, fork_server: ForkServer
) -> None:
    _count(check_crashes(opener, fork_server, passages=1))


@sample.cases(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_while_recovering_loses_and_doubles_nothing(
    kind: str, tmp_path: Path, fork_server: ForkServer
) -> None:
    pairs = sample.cut(PAIRS, SAMPLED_PAIRS, kind)
    _count(check_crash_pairs(_opener(kind, tmp_path), fork_server, pairs))


def test_every_crash_point_kills_under_some_protocol(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    points: Counter[CrashPoint] = Counter()
    for kind in ("2pc-append", "wal-append"):
        points += check_crashes(_opener(kind, tmp_path), fork_server, passages=1).points
    assert set(points) == set(CrashPoint), f"never hit: {set(CrashPoint) - set(points)}"


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@ALL
def test_a_crash_at_every_passage_of_every_point(opener: Opener, fork_server: ForkServer) -> None:
    _count(check_crashes(opener, fork_server))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@ALL
def test_every_pair_of_crashes(opener: Opener, fork_server: ForkServer) -> None:
    _count(check_crash_pairs(opener, fork_server))
