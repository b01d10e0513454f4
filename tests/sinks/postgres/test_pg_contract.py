"""The sink keeps the contract, in every protocol and write, on a real server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from abs_core.crash import CrashPoint
from abs_core.testing import Opener, check_sink
from abs_core.testing.check_crashes import Nursery, check_crashes

pytestmark = pytest.mark.services
KILLED: Counter[CrashPoint] = Counter()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def test_the_sink_keeps_every_rule(opener: Opener) -> None:
    assert len(check_sink(opener)) > 30


def test_a_crash_at_any_point_loses_and_doubles_nothing(opener: Opener, nursery: Nursery) -> None:
    killed = check_crashes(opener, nursery)
    KILLED.update(killed.points)
    print(f"{killed.histories} jobs, {killed.points.total()} kills, {len(killed.points)} points")
