"""The contract on a second server, by other hands: no rule rests on the habits of the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest

from abs_core.errors import ConfigError, RefusedError, UnavailableError
from abs_sinks.s3.preflight import preflight
from abs_sinks.s3.testing import FolderHarness
from abs_testing import check_sink
from abs_testing.case import Case, rows
from abs_testing.check_crashes import ForkServer, check_crashes
from tests.kit.versity import NativeVersity, build_versitygw, find_versitygw
from tests.sinks.s3.clock import SetClock

pytestmark = pytest.mark.services

LEFT = rows(0, 3)
Opener = Callable[[], AbstractContextManager[FolderHarness]]


@pytest.fixture(scope="module")
def s3(request: pytest.FixtureRequest) -> Iterator[NativeVersity]:
    """versitygw, where it is there; the campaign builds it."""
    try:
        if any(item.get_closest_marker("campaign") for item in request.session.items):
            build_versitygw()
        find_versitygw()
    except (ConfigError, UnavailableError) as missing:
        pytest.skip(str(missing))
    with NativeVersity() as server:
        yield server


@pytest.fixture
def prefix(s3: NativeVersity) -> str:
    s3.start()
    return "second"


@pytest.mark.parametrize(
    "protocol",
    ["2pc", *(pytest.param(way, marks=pytest.mark.campaign) for way in ("wal", "idempotent"))],
    indirect=True,
)
def test_the_sink_keeps_every_rule_on_the_second_server(
    opener: Opener, harness: FolderHarness
) -> None:
    assert preflight(harness.options, "job") == []
    assert len(check_sink(opener, at_once=6)) > 30


@pytest.mark.parametrize("protocol", ["2pc"], indirect=True)
def test_a_clock_that_the_server_does_not_believe_stops_the_job_and_says_so(
    case: Case, set_clock: SetClock
) -> None:
    set_clock(timedelta(hours=2))
    with pytest.raises(RefusedError, match="clock") as refused:
        case.run().epoch(0, LEFT)
    assert not refused.value.retryable
    set_clock(timedelta())
    case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after the clock was set")


@pytest.mark.campaign
def test_a_crash_at_each_point_loses_and_doubles_nothing_on_the_second_server(
    opener: Opener, store: object
) -> None:
    with ForkServer() as fork_server:
        killed = check_crashes(opener, fork_server, passages=1)
    print(f"{killed.histories} jobs, {killed.points.total()} kills, {len(killed.points)} points")
