"""The version of an epoch's mark only grows: over adoptions, a new name and a move of the register."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from abs_cli.moving import move, rename
from abs_core.errors import AbsError, IdentityError
from abs_core.registers import FileRegister
from abs_testing import Row
from abs_testing.case import JOB, Case, consent_in, raises
from tests.planted import planted
from tests.sinks.lake.conftest import TableOpener
from tests.sinks.lake.test_lake_planted_bugs import takes_the_epoch_alone_for_the_version

FIRST: list[Row] = [(1, "a"), (2, "b")]
SECOND: list[Row] = [(3, "c")]
THIRD: list[Row] = [(4, "d")]


def adopted(case: Case, lineage: str, rows: list[Row]) -> None:
    """Another lineage takes the job over, and counts its epochs from 0."""
    refused = case.run(lineage=lineage)
    token = consent_in(raises(IdentityError, lambda: refused.begin(0)))
    case.run(lineage=lineage, adopt=token).epoch(0, rows)


def an_adoption(case: Case, folder: Path) -> None:
    case.run().epoch(5, FIRST)
    adopted(case, "another", SECOND)
    case.run(lineage="another").epoch(1, THIRD)


def two_adoptions(case: Case, folder: Path) -> None:
    case.run().epoch(5, FIRST)
    adopted(case, "another", SECOND)
    adopted(case, "a third", THIRD)


def a_new_name(case: Case, folder: Path) -> None:
    case.run().epoch(5, FIRST)
    sink = case.sink()
    register = sink.register()
    assert isinstance(register, FileRegister)
    rename(register, sink.committer(), JOB, "new")
    refused = case.run("new", lineage="another")
    token = consent_in(raises(IdentityError, lambda: refused.begin(0)))
    case.run("new", lineage="another", adopt=token).epoch(0, SECOND)
    case.run("new", lineage="another").epoch(1, THIRD)


def a_moved_register(case: Case, folder: Path) -> None:
    """To another folder, and back again."""
    case.run().epoch(5, FIRST)
    sink = case.sink()
    here = sink.register()
    assert isinstance(here, FileRegister)
    there = FileRegister(folder / "elsewhere")
    move(here, sink.committer(), JOB, there)
    refused = case.run(lineage="another", store=there)
    token = consent_in(raises(IdentityError, lambda: refused.begin(0)))
    case.run(lineage="another", adopt=token, store=there).epoch(0, SECOND)
    move(there, sink.committer(), JOB, here)
    case.run(lineage="another").epoch(1, THIRD)


LIVES = [an_adoption, two_adoptions, a_new_name, a_moved_register]


@pytest.mark.parametrize("life", LIVES)
def test_each_row_is_there_once_after(
    life: Callable[[Case, Path], None], opener: TableOpener, tmp_path: Path
) -> None:
    with opener() as harness, Case(harness) as case:
        life(case, tmp_path)
        case.holds(FIRST, SECOND, THIRD, when=f"after {life.__name__}")


@pytest.mark.parametrize("life", LIVES)
def test_a_mark_of_the_epoch_alone_is_found_after(
    life: Callable[[Case, Path], None], opener: TableOpener, tmp_path: Path
) -> None:
    """The planted defect: epochs that are counted anew are taken for old ones, and lost."""
    bug = planted(takes_the_epoch_alone_for_the_version, by=(AssertionError, AbsError))
    with opener() as harness, Case(harness) as case, bug:
        life_and_look(case, life, tmp_path)


def life_and_look(case: Case, life: Callable[[Case, Path], None], folder: Path) -> None:
    life(case, folder)
    case.holds(FIRST, SECOND, THIRD, when=f"after {life.__name__}")
