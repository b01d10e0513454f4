"""Drivers with other clocks, and many jobs on one folder: each row once, and each job its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from abs_core.errors import FencedError
from abs_sinks.s3.sink import admin_committer
from abs_sinks.s3.testing import FolderHarness
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from tests.sinks.s3.clock import SetClock

pytestmark = pytest.mark.services

LEFT, RIGHT, NEXT = rows(0, 3), rows(10, 3), rows(20, 3)


def test_drivers_whose_clocks_differ_write_each_row_once(
    harness: FolderHarness, case: Case, set_clock: SetClock
) -> None:
    set_clock(timedelta(minutes=10))
    first = case.run()
    shares = first.tasks(0, LEFT, RIGHT)
    set_clock(timedelta(minutes=-10))
    second = case.run()
    doubts = admin_committer(harness.options).in_doubt(None)
    assert all((doubt.age_seconds or 0) >= 0 for doubt in doubts)
    second.epoch(0, LEFT, RIGHT)
    set_clock(timedelta(minutes=10))
    with pytest.raises(FencedError):
        first.commit(0, shares)
    case.run().epoch(1, NEXT)
    case.finished(LEFT, RIGHT, NEXT, when="after drivers whose clocks are 20 minutes apart")


def test_jobs_that_sweep_at_once_end_their_own_leftovers_and_nothing_else(
    case: Case,
) -> None:
    names = ["a", "a.b", "a-1", "A", "b"]
    before = "co_commit" if case.co_commits else "compare_and_set"
    expected = []
    for number, name in enumerate(names):
        part = rows(100 * number, 3)
        expected.append(part)
        with pytest.raises(Halted):
            case.run(name, cut=Cut(before)).epoch(0, part)
    together = threading.Barrier(len(names))

    def live(number: int) -> None:
        run = case.run(names[number])
        shares = run.tasks(0, expected[number])  # begun: another job's sweep must leave it alone
        together.wait(60)
        run.sweep()
        together.wait(60)
        run.commit(0, shares)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(live, range(len(names))))
    case.holds(*expected, when="after five jobs swept at once")
    case.is_clean(*names, when="after five jobs swept at once")


def test_leftovers_of_several_jobs_are_ended_in_one_call(
    harness: FolderHarness, case: Case
) -> None:
    for name in ("one", "two"):
        case.run(name).tasks(0, LEFT)
    committer = admin_committer(harness.options)
    doubts = committer.in_doubt(None)
    assert {doubt.handle.job for doubt in doubts} == {"one", "two"}
    committer.abort([doubt.handle for doubt in doubts])
    assert committer.in_doubt(None) == []
    case.is_clean("one", "two", when="after all was aborted")
