"""Sinks for tables at crashes and lost calls; planted defects are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from abs_core.crash import CrashPoint
from abs_core.model import TOGETHER, Committable, Outcome
from abs_sinks.lake import committer as lake
from abs_sinks.lake.committer import LakeCommitter
from abs_sinks.lake.table import Mark
from abs_testing import run_check
from abs_testing.calls import by_calls
from abs_testing.check_crashes import ForkServer, check_crashes
from abs_testing.check_positions import Position, check_positions
from abs_testing.checks import CHECKS
from tests import sample
from tests.kit.crash_points import CO_COMMIT, RARE
from tests.sinks.lake.conftest import TableOpener, in_catalog

SAMPLED = 12
"""Positions in the sample; the campaign tries all."""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


@pytest.mark.long
def test_a_crash_at_each_point_loses_and_doubles_nothing(
    opener: TableOpener, fork_server: ForkServer
) -> None:
    killed = check_crashes(opener, fork_server, passages=1)
    assert set(killed.points) >= set(CrashPoint) - CO_COMMIT - RARE


@pytest.mark.campaign
def test_a_crash_at_each_point_loses_and_doubles_nothing_with_a_rest_catalog(
    rest: dict[str, str], tmp_path: Path, fork_server: ForkServer
) -> None:
    killed = check_crashes(in_catalog(tmp_path, rest), fork_server, passages=2)
    assert set(killed.points) >= set(CrashPoint) - CO_COMMIT - RARE


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_crash_at_any_passage_loses_and_doubles_nothing(
    opener: TableOpener, fork_server: ForkServer
) -> None:
    check_crashes(opener, fork_server)


@pytest.mark.services
@pytest.mark.parametrize(
    "points",
    [
        {CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE, CrashPoint.AFTER_COMMIT},
        pytest.param(set(CrashPoint) - CO_COMMIT - RARE, marks=pytest.mark.campaign),
    ],
    ids=["the worst", "all"],
)
def test_a_crash_at_a_point_loses_and_doubles_nothing_on_a_server(
    bucket_opener: TableOpener, points: set[CrashPoint]
) -> None:
    with ForkServer() as fork_server:  # its processes have the environment of now, with credentials
        killed = check_crashes(bucket_opener, fork_server, passages=1, points=points)
    assert set(killed.points) >= points


@pytest.mark.long
def test_no_call_that_is_lost_delayed_or_doubled_loses_or_doubles_a_row(
    opener: TableOpener,
) -> None:
    choose: Callable[[Sequence[Position]], Sequence[Position]] = partial(
        sample.cut, size=SAMPLED, of="lake"
    )
    tried = check_positions(by_calls(opener), choose=choose)
    assert len(tried.tried) == SAMPLED


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_no_call_at_any_position_can_be_lost(opener: TableOpener) -> None:
    check_positions(by_calls(opener))


def commits_without_looking(patch: pytest.MonkeyPatch) -> None:
    """As a library's own retry does: the mark of the epoch is not looked for."""
    patch.setattr(lake, "_is_in", lambda *args: False)


def takes_the_epoch_alone_for_the_version(patch: pytest.MonkeyPatch) -> None:
    """Epochs that begin anew after an adoption are taken for old ones, and lost."""
    proper = lake.mark_of

    def epoch_alone(share: Sequence[Committable]) -> Mark:
        right = proper(share)
        return Mark(right.application, right.version % lake.EPOCHS, right.told)

    patch.setattr(lake, "mark_of", epoch_alone)


def commits_a_part(patch: pytest.MonkeyPatch) -> None:
    """A part of an epoch's handles takes its mark, and the others are never added."""

    def seal(share: Sequence[Committable]) -> str:
        return dict(share[0].extra).get(TOGETHER, "1:sealed")

    patch.setattr(lake, "_seal_of", seal)


def takes_completed_files_for_committed(patch: pytest.MonkeyPatch) -> None:
    """The table's commit is left out where the files are completed already."""

    def added(self: LakeCommitter, share: object, first: object, files: object) -> Outcome:
        return Outcome.COMMITTED

    patch.setattr(LakeCommitter, "_added", added)


RULES: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    commits_without_looking: "a_committed_handle_is_known_as_committed",
    takes_the_epoch_alone_for_the_version: "an_adopted_job_keeps_its_open_decisions",
    commits_a_part: "an_epoch_without_tasks_is_finished",
    takes_completed_files_for_committed: "epochs_of_many_tasks_are_there_once",
}
"""Each planted defect, and a rule that finds it."""


@pytest.mark.parametrize("plant", RULES)
def test_a_planted_defect_is_found_by_a_rule(
    plant: Callable[[pytest.MonkeyPatch], None],
    opener: TableOpener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    (check,) = (check for check in CHECKS if check.rule == RULES[plant])
    with pytest.raises(AssertionError):
        run_check(opener, check)
