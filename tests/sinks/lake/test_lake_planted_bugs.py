"""A rule finds each defect that is planted in the sinks for tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from abs_clients.delta.log import DeltaSnapshot
from abs_core.lookback import EPOCHS
from abs_core.model import TOGETHER, Committable, Outcome
from abs_sinks.lake import committer as lake
from abs_sinks.lake.committer import LakeCommitter
from abs_sinks.lake.table import Mark
from abs_testing import run_check
from abs_testing.checks import CHECKS
from tests.planted import Bug, Plant, planted
from tests.sinks.lake.conftest import TableOpener, in_folder


def commits_without_looking(plant: Plant) -> None:
    """As a library's own retry does: the mark of the epoch is not looked for."""
    plant(lake, "_is_in", lambda *args: False)


def takes_the_epoch_alone_for_the_version(plant: Plant) -> None:
    """Epochs that begin anew after an adoption are taken for old ones, and lost."""
    proper = lake.mark_of

    def epoch_alone(share: Sequence[Committable]) -> Mark:
        right = proper(share)
        return Mark(right.application, right.version % EPOCHS, right.told)

    plant(lake, "mark_of", epoch_alone)


def commits_a_part(plant: Plant) -> None:
    """A part of an epoch's handles takes its mark, and the others are never added."""

    def seal(share: Sequence[Committable]) -> str:
        return dict(share[0].extra).get(TOGETHER, "1:sealed")

    plant(lake, "_seal_of", seal)


def takes_completed_files_for_committed(plant: Plant) -> None:
    """The table's commit is left out where the files are completed already."""

    def added(self: LakeCommitter, share: object, first: object, files: object) -> Outcome:
        return Outcome.COMMITTED

    plant(LakeCommitter, "_added", added)


RULES: dict[Bug, str] = {
    commits_without_looking: "a_committed_handle_is_known_as_committed",
    takes_the_epoch_alone_for_the_version: "an_adopted_job_keeps_its_open_decisions",
    commits_a_part: "an_epoch_without_tasks_is_finished",
    takes_completed_files_for_committed: "epochs_of_many_tasks_are_there_once",
}
"""Each planted defect, and a rule that finds it."""


@pytest.mark.parametrize("bug", RULES)
def test_a_planted_defect_is_found_by_a_rule(bug: Bug, opener: TableOpener) -> None:
    (check,) = (check for check in CHECKS if check.rule == RULES[bug])
    with planted(bug):
        run_check(opener, check)


def test_a_commit_that_is_found_by_job_and_epoch_alone_is_found_by_a_rule(tmp_path: Path) -> None:
    """As Delta's was: of two sinks in one table both were told as lost, and repaired."""

    def by_job_and_epoch(self: DeltaSnapshot, mark: Mark) -> str | None:
        commits = self._commits(16)
        return next((str(c["version"]) for c in commits if mark.told.items() <= c.items()), None)

    (check,) = (check for check in CHECKS if check.rule == OF_TWO)
    with planted((DeltaSnapshot, "place_of", by_job_and_epoch), match="sink b alone"):
        run_check(in_folder("delta", tmp_path), check)


OF_TWO = "of_two_sinks_in_one_target_that_went_back_the_one_that_lost_rows_is_told"


def test_each_sink_of_a_table_is_told_by_itself(opener: TableOpener) -> None:
    (check,) = (check for check in CHECKS if check.rule == OF_TWO)
    assert run_check(opener, check)
