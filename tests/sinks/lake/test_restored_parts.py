"""Parts of a job's state that are restored alone: no row is lost or doubled without a word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from abs_core.births import rules as births
from abs_core.coordinator._looking import Lookout
from abs_sinks.lake import lookback
from tests import sample
from tests.kit.restored_parts import history
from tests.planted import Bug, Plant, planted

FAKES = ("fake", "fake beside its register")
TABLES = ("delta", "iceberg")


def lived(name: str, numbers: Sequence[int], folder: Path) -> None:
    for number in numbers:
        random = Random(f"parts {name} {number} {sample.seed()}")
        with history(name, folder / str(number), random) as one:
            one.live()


@pytest.mark.parametrize(("name", "number"), [*((name, 20) for name in FAKES), ("delta", 2)])
def test_parts_that_go_back_are_told_or_nothing_is_lost(
    name: str, number: int, tmp_path: Path
) -> None:
    lived(name, range(number), tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("name", [*FAKES, *TABLES])
def test_any_parts_that_go_back_are_told_or_nothing_is_lost(name: str, tmp_path: Path) -> None:
    lived(name, range(20, 1000) if name in FAKES else range(150), tmp_path)


# Planted.


def believes_any_register(plant: Plant) -> None:
    plant(births, "why_lost", lambda state, who, origin, epoch: None)


def looks_back_at_nothing(plant: Plant) -> None:
    plant(Lookout, "at_start", lambda self, before, rule, epoch: ())


def takes_the_marks_of_a_table_for_its_log(plant: Plant) -> None:
    """Delta keeps them over RESTORE; but a log that was cut has none of them."""

    def look_back(snapshot: object, past: object, epochs: int) -> list[object]:
        return []

    plant(lookback, "look_back", look_back)


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        pytest.param(believes_any_register, "fake", marks=pytest.mark.campaign),
        (looks_back_at_nothing, "fake beside its register"),
        pytest.param(takes_the_marks_of_a_table_for_its_log, "delta", marks=pytest.mark.campaign),
        pytest.param(takes_the_marks_of_a_table_for_its_log, "iceberg", marks=pytest.mark.campaign),
    ],
)
def test_what_believes_a_part_that_went_back_is_found(bug: Bug, name: str, tmp_path: Path) -> None:
    with planted(bug):
        lived(name, range(200), tmp_path)
