"""Dead letters of a sink: one suite, to which each system puts each way to keep them.

A system's module takes the tests from here and lists its ways:

    from tests.sinks.dead_letters import *
    pytest_generate_tests = in_each(WAYS)

It has these fixtures: ``opener`` opens a harness of the fixture ``name`` whose target refuses the rows
that ``is_poison`` tells, and whose ``letters`` are code and row of each dead letter (``together``: a
reader sees both, so that each check of the kit is one of the equation); ``buries_at_once`` and
``drops_a_bad_row`` are bugs to be planted, and ``ignores_the_limit`` plant a defect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from abs_core import deadletters as core
from abs_core.crash import CrashPoint
from abs_core.errors import AbsError, DeadLettersError, HandleLostError
from abs_core.model import Dead
from abs_testing import check_sink
from abs_testing.case import Case, rows
from abs_testing.check_crashes import ForkServer, check_crashes
from abs_testing.cuts import Cut
from tests import sample
from tests.planted import Bug, planted

__all__ = [
    "ignores_the_limit",
    "test_a_bad_row_that_is_dropped_is_found",
    "test_a_kill_at_any_point_loses_and_doubles_no_row_and_no_dead_letter",
    "test_a_kill_at_the_sampled_points_loses_and_doubles_no_row_and_no_dead_letter",
    "test_a_limit_that_is_ignored_is_found",
    "test_a_target_that_refuses_everything_stops_the_query",
    "test_an_epoch_that_is_written_again_has_each_row_once",
    "test_dead_letters_outside_the_decision_are_found",
    "test_target_and_dead_letters_are_the_input",
    "test_the_sink_keeps_every_rule_with_dead_letters",
]

Opener = Callable[..., AbstractContextManager[Any]]


@dataclass(frozen=True)
class Way:
    """One way to keep dead letters.

    Args:
        kills: where the sample kills a job of this way.
    """

    name: str
    kills: tuple[CrashPoint, ...] = ()


def is_poison(id_: int) -> bool:
    """Whether the target of these tests refuses the row."""
    return id_ % 5 == 2


def in_each(ways: Sequence[Way]) -> Callable[[pytest.Metafunc], None]:
    """The module's ``pytest_generate_tests``."""

    def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
        if "kills" in metafunc.fixturenames:
            killed = [pytest.param(w.name, w.kills, id=w.name) for w in ways if w.kills]
            metafunc.parametrize(("name", "kills"), killed)
        elif "name" in metafunc.fixturenames and not _has_names(metafunc):
            metafunc.parametrize("name", [way.name for way in ways])

    return pytest_generate_tests


def _has_names(metafunc: pytest.Metafunc) -> bool:
    marks = metafunc.definition.iter_markers("parametrize")
    return any("name" in mark.args[0] for mark in marks)


def test_target_and_dead_letters_are_the_input(opener: Opener) -> None:
    with opener() as harness, Case(harness) as case:
        case.run().epoch(0, rows(0, 10), rows(10, 10))
        case.run().epoch(1, [(22, "only bad")])
        bad = [row for row in rows(0, 20) if is_poison(row[0])]
        assert sorted(row for _, row in harness.letters()) == [*bad, (22, "only bad")]
        assert {code for code, _ in harness.letters()} == {harness.code}
        good = [row for row in rows(0, 20) if row not in bad]
        case.finished(good, when="after rows that the target refuses")
        found = [recent.dead for recent in case.run().state().recent]
        assert found == [(Dead(0, 20, 4),), (Dead(0, 1, 1),)]


@sample.cases(1)
def test_a_target_that_refuses_everything_stops_the_query(opener: Opener) -> None:
    _stops_at_the_limit(opener)


@pytest.fixture
def ignores_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MIN_DEAD", 10**9)


@sample.cases(1)
@pytest.mark.usefixtures("ignores_the_limit")
def test_a_limit_that_is_ignored_is_found(opener: Opener) -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        _stops_at_the_limit(opener)


def _stops_at_the_limit(opener: Opener) -> None:
    with opener(deadlettermax=0.01) as harness, Case(harness) as case:
        with pytest.raises(DeadLettersError, match="deadlettermax"):
            case.run().epoch(0, [(5 * n + 2, "bad") for n in range(500)])
        assert harness.letters() == []
        case.run().epoch(0, rows(3, 3))
        case.finished(rows(3, 3), when="after an epoch that passed the limit")


def test_a_kill_at_the_sampled_points_loses_and_doubles_no_row_and_no_dead_letter(
    opener: Opener, fork_server: ForkServer, kills: Iterable[CrashPoint]
) -> None:
    killed = check_crashes(partial(opener, together=True), fork_server, 1, kills)
    assert set(killed.points) == set(kills)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_kill_at_any_point_loses_and_doubles_no_row_and_no_dead_letter(
    opener: Opener, fork_server: ForkServer, name: str
) -> None:
    assert check_crashes(partial(opener, together=True), fork_server, 1).points.total() > 5


@pytest.mark.campaign
def test_the_sink_keeps_every_rule_with_dead_letters(opener: Opener) -> None:
    assert len(check_sink(partial(opener, together=True), at_once=4)) > 30


@sample.cases(2)
def test_an_epoch_that_is_written_again_has_each_row_once(opener: Opener) -> None:
    check_replays(opener)


@sample.cases(1)
def test_dead_letters_outside_the_decision_are_found(opener: Opener, buries_at_once: Bug) -> None:
    finds(opener, buries_at_once)


@sample.cases(1)
def test_a_bad_row_that_is_dropped_is_found(opener: Opener, drops_a_bad_row: Bug) -> None:
    finds(opener, drops_a_bad_row)


def finds(opener: Opener, bug: Bug) -> None:
    """That what is planted is found."""
    with planted(bug, by=(AssertionError, AbsError)):
        check_replays(opener)


def check_lost(opener: Opener, lose: Callable[[Any], object]) -> None:
    """Of a decided epoch the target loses what was prepared: the next start names it, and stays there.

    Args:
        lose: makes the harness's target lose the prepared dead letters, as its administrator could.
    """
    passed = rows(0, 10)
    with opener() as harness, Case(harness) as case:
        case.halted(Cut("commit"), passed)
        assert harness.letters() == [], "dead letters are visible before the commit"
        lose(harness)
        for _ in range(2):
            run = case.run()
            with pytest.raises(HandleLostError, match="10 rows, 2 of them dead letters") as caught:
                run.epoch(0, passed)
            assert caught.value.epoch == 0
            (decision,) = run.state().open
            assert caught.value.handle == str(decision.committables[0].handle)


def check_replays(opener: Opener) -> None:
    """A task is tried twice, its epoch is given up by a run, and written by the next one."""
    with opener(together=True) as harness, Case(harness) as case:
        run = case.run()
        run.attempt(0).write(*rows(0, 13)).pre_commit()
        run.commit(0, run.tasks(0, rows(0, 13)))
        run.attempt(1).write(*rows(20, 3)).pre_commit()
        case.run().epoch(1, rows(20, 3))
        case.finished(rows(0, 13), rows(20, 3), when="after epochs that were written again")
        letters = harness.letters()
        bad = {row for row in [*rows(0, 13), *rows(20, 3)] if is_poison(row[0])}
        assert len(letters) == len(set(letters)), "a dead letter is there twice"
        assert bad <= {row for _, row in letters}
