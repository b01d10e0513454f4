"""What the tests of one day draw: a seed by date, and cuts of products that are too large for each run.

Each day tries another part, so that in time all of it is tried; on one day every run tries the same.
`make campaign` tries what `make test` of the same day leaves out: both together try the products whole.
The seed is printed at the head of a run; a day is repeated with ``ABS_TEST_SEED=20261123 make test``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

MINUTES = (
    "an executor and the driver of a cluster",
    "a worker of a cluster",
    "a worker with dynamic allocation",
    "a speculative copy",
    "each broker in turn",
    "a task that died and readers",
    "the tutorial",
    "a Connect server",
    "a packed environment",
    "the wheel by --py-files",
    "what Connect does not tell",
)
"""Tests through Spark that take a minute and more: one of these a day, see ``takes_minutes``."""

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., Any])


def seed() -> int:
    """The seed of this day: ``ABS_TEST_SEED``, or the date as a number (20261123)."""
    given = os.environ.get("ABS_TEST_SEED")
    return int(given) if given else int(f"{datetime.now(UTC):%Y%m%d}")


def cut(items: Iterable[T], size: int, of: str) -> list[T]:
    """A sample of this day, in the order of the items; all of them where there are no more.

    Args:
        of: the name of the product: two products of one length are cut independently.
    """
    all_of_them = list(items)
    if len(all_of_them) <= size:
        return all_of_them
    drawn = random.Random(f"{seed()}:{of}").sample(range(len(all_of_them)), size)
    return [all_of_them[number] for number in sorted(drawn)]


def members(items: Iterable[T], size: int, of: str) -> list[ParameterSet]:
    """All of a product, for ``parametrize``: those of this day, and the others as the campaign's."""
    all_of_them = list(items)
    today = cut(range(len(all_of_them)), size, of)
    return [
        pytest.param(item, marks=() if number in today else pytest.mark.campaign)
        for number, item in enumerate(all_of_them)
    ]


def hand(items: Iterable[T], number: int, hands: int, of: str) -> list[T]:
    """What one of so many gets where a product is dealt among them: each item goes to one, of this day.

    So each rule is tried each day under one of several ways, and each way with some of the rules.
    """
    all_of_them = list(items)
    shuffled = random.Random(f"{seed()}:{of}").sample(range(len(all_of_them)), len(all_of_them))
    return [all_of_them[place] for place in sorted(shuffled[number::hands])]


def marks(name: str, among: Iterable[str], of: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that takes turns with others, one a day: none today, or ``campaign``.

    Args:
        among: the names of all that take turns.
        of: as of ``cut``.
    """
    names = list(among)
    assert name in names
    return [] if name in cut(names, 1, of) else [pytest.mark.campaign]


def turn(name: str, among: Iterable[str], of: str) -> Callable[[Test], Test]:
    """``marks``, as a decorator."""

    def mark(test: Test) -> Test:
        for one in marks(name, among, of):
            test = one(test)
        return test

    return mark


def takes_minutes(name: str) -> Callable[[Test], Test]:
    """For a test that takes minutes: one of ``MINUTES`` runs each day, the others in the campaign."""
    return turn(name, MINUTES, of="tests of minutes")
