"""The contract of a sink: one suite, to which each system puts each way to use its sink.

A system's module takes the tests from here, lists its ways, and has a fixture ``opener``, which opens a
harness on an empty target for the fixture ``way``:

    from tests.sinks.contract import *
    pytest_generate_tests = in_each(WAYS)

``test_contract_suite.py`` holds that each format that the door finds has such a module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from queue import SimpleQueue
from typing import TypeVar

import pytest
from _pytest.mark.structures import MarkDecorator

from abs_core.crash import CrashPoint
from abs_testing import (
    ForkServer,
    Killed,
    Opener,
    applicable,
    check_crash_pairs,
    check_crashes,
    run_check,
)
from abs_testing.case import Case
from abs_testing.check_register import CHECKS, INVENTORY_CHECKS, NewStore
from abs_testing.checks import refusals
from abs_testing.rules import Check, checks_in
from tests.kit.crash_points import WORST
from tests.kit.entered import modules_entered

__all__ = [
    "Way",
    "in_each",
    "test_a_crash_at_any_passage_loses_and_doubles_nothing",
    "test_a_crash_at_the_sampled_points_loses_and_doubles_nothing",
    "test_a_crash_while_recovering_loses_and_doubles_nothing",
    "test_a_write_without_dead_letters_never_enters_their_rooms",
    "test_each_pair_of_the_worst_crashes_loses_and_doubles_nothing",
    "test_the_sink_keeps_every_rule",
    "test_the_sink_keeps_the_rules_of_a_target_that_refuses",
    "test_the_sink_keeps_the_sampled_rules",
]

ALONE = {"in_doubt_is_exactly_the_jobs_own"}
"""Looks at all that a broker has of a job's name, and the rules' jobs share their names."""

LETTERS = "sinks/abs_sinks/deadletters/"

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Way:
    """One way to use a sink.

    Args:
        rules: those in the sample; a system deals all of them to its ways.
        points: the crash points that a job of this way passes, all of them; none: not tried.
        crashes: those of them in the sample, at their first passage.
        pairs: a crash and one while recovering from it, in the sample.
        deaths: how often the sampled pairs kill, at least.
        at_once: so many rules or jobs at a time: they mostly wait for the server.
        marks: of all of its tests.
    """

    name: str
    rules: Sequence[Check] = ()
    points: frozenset[CrashPoint] = frozenset()
    crashes: frozenset[CrashPoint] = frozenset()
    pairs: tuple[tuple[CrashPoint, CrashPoint], ...] = ()
    deaths: int = 1
    at_once: int = 1
    marks: tuple[MarkDecorator, ...] = ()


def in_each(ways: Sequence[Way]) -> Callable[[pytest.Metafunc], None]:
    """The module's ``pytest_generate_tests``: each test in the ways that it is about."""
    about: dict[str, Callable[[Way], object]] = {
        "test_the_sink_keeps_the_sampled_rules": lambda way: way.rules,
        "test_the_sink_keeps_the_rules_of_a_target_that_refuses": lambda way: way.rules,
        "test_a_crash_at_the_sampled_points_loses_and_doubles_nothing": lambda way: way.crashes,
        "test_a_crash_while_recovering_loses_and_doubles_nothing": lambda way: way.pairs,
        "test_a_crash_at_any_passage_loses_and_doubles_nothing": lambda way: way.points,
        "test_each_pair_of_the_worst_crashes_loses_and_doubles_nothing": lambda way: way.points,
        "test_a_write_without_dead_letters_never_enters_their_rooms": lambda way: way in ways[:2],
    }

    def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
        if "way" in metafunc.fixturenames:
            has = about.get(metafunc.function.__name__)
            chosen = [way for way in ways if has is None or has(way)]
            assert chosen, f"no way has {metafunc.function.__name__}: leave it out"
            named = [pytest.param(way, id=way.name, marks=way.marks) for way in chosen]
            metafunc.parametrize("way", named)

    return pytest_generate_tests


@pytest.mark.parametrize("check", [*CHECKS, *INVENTORY_CHECKS], ids=lambda check: check.__name__)
def test_the_register_keeps_the_rule(
    check: Callable[[NewStore], None], new_store: NewStore
) -> None:
    """Of each system that has registers: taken by a module with a fixture ``new_store``."""
    check(new_store)


def test_the_sink_keeps_the_sampled_rules(opener: Opener, way: Way) -> None:
    """Where a rule does not apply, it counts as kept."""
    assert sum(_put_to(opener, way.rules, way.at_once)) > len(way.rules) // 4


def test_the_sink_keeps_the_rules_of_a_target_that_refuses(opener: Opener, way: Way) -> None:
    """All of them in each way: a decision that cannot be kept is never left to the campaign."""
    _put_to(opener, checks_in(refusals), way.at_once)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_the_sink_keeps_every_rule(opener: Opener, way: Way) -> None:
    rules = applicable(opener)
    assert len(rules) > 30
    assert all(_put_to(opener, rules, way.at_once))


def test_a_write_without_dead_letters_never_enters_their_rooms(opener: Opener) -> None:
    with opener() as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, [(0, "a")])
        entered = modules_entered(lambda: run.epoch(1, [(1, "b"), (2, "c")], [(3, "d")]))
    assert "abs_core/stepwise.py" in entered
    assert [path for path in entered if LETTERS in path] == []


def test_a_crash_at_the_sampled_points_loses_and_doubles_nothing(opener: Opener, way: Way) -> None:
    assert set(survives(opener, way.crashes, way.at_once, passages=1).points) == way.crashes


def test_a_crash_while_recovering_loses_and_doubles_nothing(opener: Opener, way: Way) -> None:
    assert _survives_pairs(opener, way.pairs, way.at_once).points.total() >= way.deaths


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_crash_at_any_passage_loses_and_doubles_nothing(opener: Opener, way: Way) -> None:
    assert set(survives(opener, CrashPoint, way.at_once).points) == way.points


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_each_pair_of_the_worst_crashes_loses_and_doubles_nothing(opener: Opener, way: Way) -> None:
    points = sorted(WORST & way.points)
    _survives_pairs(opener, product(points, points), way.at_once)


def _put_to(opener: Opener, rules: Sequence[Check], at_once: int) -> list[bool]:
    """Put the sink to each rule; whether each applies to it."""
    alone = [check for check in rules if at_once > 1 and check.rule in ALONE]
    with ThreadPoolExecutor(at_once) as pool:
        together = [check for check in rules if check not in alone]
        under = list(pool.map(lambda check: run_check(opener, check), together))
    return under + [run_check(opener, check) for check in alone]


def survives(
    opener: Opener, points: Iterable[CrashPoint], at_once: int = 1, passages: int = 1000
) -> Killed:
    """``check_crashes`` at these points, several jobs at a time."""

    def crash(point: CrashPoint, fork_server: ForkServer) -> Killed:
        return check_crashes(opener, fork_server, passages, [point])

    return _survives(crash, points, at_once)


def _survives_pairs(
    opener: Opener, pairs: Iterable[tuple[CrashPoint, CrashPoint]], at_once: int
) -> Killed:
    def crash(pair: tuple[CrashPoint, CrashPoint], fork_server: ForkServer) -> Killed:
        return check_crash_pairs(opener, fork_server, [pair])

    return _survives(crash, pairs, at_once)


def _survives(work: Callable[[T, ForkServer], Killed], of: Iterable[T], at_once: int) -> Killed:
    """Several at a time, each with a fork server of its own."""
    items = list(of)
    free: SimpleQueue[ForkServer] = SimpleQueue()

    def one(item: T) -> Killed:
        fork_server = free.get()
        try:
            return work(item, fork_server)
        finally:
            free.put(fork_server)

    with ExitStack() as stack, ThreadPoolExecutor(at_once) as pool:
        for _ in range(min(at_once, len(items))):
            free.put(stack.enter_context(ForkServer()))
        killed = sum(pool.map(one, items), Killed(Counter(), 0))
    print(f"{killed.histories} jobs, {killed.points.total()} kills, {len(killed.points)} points")
    return killed
