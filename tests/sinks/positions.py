"""Calls of a job that are lost, fail or come again, by their position: one suite for all sinks.

A system's module takes the tests from here, lists its lanes, with ``in_each(LANES)`` as its
``pytest_generate_tests``, and has two fixtures for the fixture ``lane``: ``through`` opens a harness
whose calls may be lost and come again, ``opener`` one for reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pytest

from abs_testing import (
    Opener,
    Position,
    PositionOpener,
    Repeat,
    RepeatOpener,
    by_calls,
    check_positions,
    check_reads,
    check_repeats,
)
from abs_testing.check_reads import STARTS
from tests.sample import cut

__all__ = [
    "Lane",
    "in_each",
    "test_a_call_that_comes_again_late_cuts_nothing",
    "test_a_call_that_is_lost_loses_and_doubles_nothing",
    "test_no_call_at_any_position_can_be_lost",
    "test_no_call_that_comes_again_late_cuts_anything",
    "test_no_read_of_any_start_is_taken_for_absence",
    "test_no_read_that_fails_is_taken_for_absence",
]


@dataclass(frozen=True, eq=False)
class Lane:
    """One way to use a sink, and to lose its calls.

    Args:
        lost, reads, repeats: how many positions, starts and repeats are in the sample; 0: all of them
            are the campaign's; None: the lane is not for these.
        choose: chooses the positions of the sample in place of ``lost`` of all.
        may_wait, varies, rehearsals: of ``check_positions``; the last one in a campaign.
        at_once, many: so many jobs at a time, in the sample and in a campaign.
    """

    name: str
    lost: int | None = None
    reads: int | None = None
    repeats: int | None = None
    choose: Callable[[Sequence[Position]], Sequence[Position]] | None = None
    may_wait: Callable[[Position], bool] = lambda _: False
    varies: Collection[str] | None = None
    rehearsals: int = 1
    at_once: int = 1
    many: int = 1


def in_each(lanes: Sequence[Lane]) -> Callable[[pytest.Metafunc], None]:
    """The module's ``pytest_generate_tests``: each test in the lanes that it is about."""
    about: dict[str, Callable[[Lane], object]] = {
        "test_a_call_that_is_lost_loses_and_doubles_nothing": lambda lane: lane.lost,
        "test_no_call_at_any_position_can_be_lost": lambda lane: lane.lost is not None,
        "test_no_read_that_fails_is_taken_for_absence": lambda lane: lane.reads,
        "test_no_read_of_any_start_is_taken_for_absence": lambda lane: lane.reads is not None,
        "test_a_call_that_comes_again_late_cuts_nothing": lambda lane: lane.repeats,
        "test_no_call_that_comes_again_late_cuts_anything": lambda lane: lane.repeats is not None,
    }

    def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
        if has := about.get(metafunc.function.__name__):
            chosen = [lane for lane in lanes if has(lane)]
            assert chosen, f"no lane has {metafunc.function.__name__}: leave it out"
            metafunc.parametrize("lane", chosen, ids=lambda lane: lane.name)

    return pytest_generate_tests


def test_a_call_that_is_lost_loses_and_doubles_nothing(through: PositionOpener, lane: Lane) -> None:
    def sampled(found: Sequence[Position]) -> Sequence[Position]:
        return cut(found, lane.lost or 0, f"{lane.name}, by position")

    done = check_positions(
        through,
        choose=lane.choose or sampled,
        may_wait=lane.may_wait,
        varies=lane.varies,
        at_once=lane.at_once,
    )
    print(lane.name, done, [str(each) for each in done.tried], sep=": ")


@pytest.mark.campaign
@pytest.mark.timeout(6 * 3600)
def test_no_call_at_any_position_can_be_lost(through: PositionOpener, lane: Lane) -> None:
    done = check_positions(
        through,
        may_wait=lane.may_wait,
        varies=lane.varies,
        rehearsals=lane.rehearsals,
        at_once=lane.many,
    )
    print(lane.name, done, sep=": ")
    assert not [position for position in done.waited if not lane.may_wait(position)]


def test_no_read_that_fails_is_taken_for_absence(opener: Opener, lane: Lane) -> None:
    for start in cut(STARTS, lane.reads or 0, f"{lane.name}, reads"):
        print(lane.name, start, check_reads(by_calls(opener), start), sep=": ")


@pytest.mark.campaign
@pytest.mark.parametrize("start", STARTS)
def test_no_read_of_any_start_is_taken_for_absence(opener: Opener, lane: Lane, start: str) -> None:
    print(lane.name, start, check_reads(by_calls(opener), start), sep=": ")


def test_a_call_that_comes_again_late_cuts_nothing(through: RepeatOpener, lane: Lane) -> None:
    def sampled(found: Sequence[Repeat]) -> Sequence[Repeat]:
        return cut(found, lane.repeats or 0, f"{lane.name}, repeats")

    print(lane.name, *check_repeats(through, choose=sampled, at_once=lane.at_once), sep=": ")


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_no_call_that_comes_again_late_cuts_anything(through: RepeatOpener, lane: Lane) -> None:
    print(lane.name, len(check_repeats(through, at_once=lane.many)), sep=": ")
