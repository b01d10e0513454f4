"""What the tests of one day draw: a seed by date, and cuts of products that are too large for each run.

Each day tries the next part: of a product of ten, of which two run a day, all have run in five days,
and the next five go through it in another order. On one day every run tries the same.
`make campaign` tries what `make test` of the same day leaves out: both together try the products whole.
The seed is printed at the head of a run; a day is repeated with ``ABS_TEST_SEED=20261123 make test``.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
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
    "the oldest libraries",
    "the wheel in an empty environment",
    "secrets in what Spark keeps",
    "a sink of others",
    "a virtual environment that is not activated",
    "a dropped register elsewhere",
    "a server that is away under a format",
)
"""Tests through Spark that take long: one of these a day, see ``takes_minutes``."""

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., Any])


def seed() -> int:
    """The seed of this day: ``ABS_TEST_SEED``, or the date as a number (20261123)."""
    given = os.environ.get("ABS_TEST_SEED")
    return int(given) if given else int(f"{datetime.now(UTC):%Y%m%d}")


def day() -> int:
    """The number of this day: one more each day. A seed that is no date is a number by itself."""
    try:
        return datetime.strptime(str(seed()), "%Y%m%d").replace(tzinfo=UTC).toordinal()
    except ValueError:
        return seed()


def cut(items: Iterable[T], size: int, of: str) -> list[T]:
    """The part of this day, in the order of the items; all of them where there are no more.

    Args:
        of: the name of the product: two products of one length are cut differently.
    """
    all_of_them = list(items)
    if len(all_of_them) <= size:
        return all_of_them
    order, part = _order(len(all_of_them), -(-len(all_of_them) // size), of)
    today = [order[(part * size + place) % len(order)] for place in range(size)]
    return [all_of_them[number] for number in sorted(today)]


def _order(size: int, days: int, of: str) -> tuple[list[int], int]:
    """In which order a product is gone through in so many days, and which of these days this is."""
    # In one order for ever, a product within another would keep step with it: where both have six
    # items, the inner one would be at the same item each time that the outer one has its turn.
    number, part = divmod(day(), days)
    return random.Random(f"{of}:{number}").sample(range(size), size), part


def members(items: Iterable[T], size: int, of: str) -> list[ParameterSet]:
    """All of a product, for ``parametrize``: those of this day, and the others as the campaign's.

    For the values of one argument or fixture; ``cases`` is for a whole test.
    """
    all_of_them = list(items)
    today = cut(range(len(all_of_them)), size, of)
    return [
        pytest.param(item, marks=() if number in today else pytest.mark.campaign)
        for number, item in enumerate(all_of_them)
    ]


def cases(size: int, of: str = "") -> pytest.MarkDecorator:
    """For a test whose cases are one rule in several ways: so many a day, the others in the campaign.

    Args:
        of: the name of an argument: so many of its values, for each combination of the others. So each
            position, or fault, is tried each day under one of the protocols.
    """
    return pytest.mark.cases(size, of)


def tests(size: int) -> pytest.MarkDecorator:
    """For a module of long tests: so many of its tests run each day, the others in the campaign.

    A test of the module whose ``turn`` it is runs besides.
    """
    return pytest.mark.tests(size)


def deal(items: Sequence[pytest.Item]) -> None:
    """Mark what this day leaves to the campaign of what ``tests`` and ``cases`` are about."""
    sizes: dict[tuple[object, ...], int] = {}
    members: dict[tuple[object, ...], dict[str, list[pytest.Item]]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("campaign") is not None:
            continue
        test = item.nodeid.split("[")[0]
        mark = item.get_closest_marker("tests")
        if mark is not None and item.get_closest_marker("turn") is None:
            (sizes[item.path,],) = mark.args
            members[item.path,].setdefault(test, []).append(item)
        if mark := item.get_closest_marker("cases"):
            size, of = mark.args
            group = (test, *_others(item, of))
            sizes[group] = size
            members[group][item.nodeid] = [item]
    for group, named in members.items():
        # The first name of a group is the same in all processes of a run.
        today = cut(named, sizes[group], of=next(iter(named)))
        for item in chain.from_iterable(named[name] for name in named if name not in today):
            item.add_marker(pytest.mark.campaign)


def _others(item: pytest.Item, of: str) -> Iterator[int]:
    """Which values the case has of the test's other arguments than this one, if there is one."""
    assert isinstance(item, pytest.Function)
    given = item.callspec.params
    assert not of or of in given, f"{item.nodeid} has no argument {of}"
    # A value is one object in all cases of a test; not each can be hashed.
    return (id(value) for name, value in sorted(given.items()) if of and name != of)


def hand(items: Iterable[T], number: int, hands: int, of: str) -> list[T]:
    """What one of so many gets where a product is dealt among them: each item goes to one, of this day.

    So each rule is tried each day under one of several ways, on the next day under the next one, and
    each way with some of the rules.
    """
    all_of_them = list(items)
    order, today = _order(len(all_of_them), hands, of)
    return [all_of_them[place] for place in sorted(order[(number + today) % hands :: hands])]


def marks(name: str, among: Iterable[str], of: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that takes turns with others, one a day: ``turn`` today, or ``campaign``.

    Args:
        among: the names of all that take turns.
        of: as of ``cut``.
    """
    names = list(among)
    assert name in names
    return [pytest.mark.turn if name in cut(names, 1, of) else pytest.mark.campaign]


def turn(name: str, among: Iterable[str], of: str) -> Callable[[Test], Test]:
    """``marks``, as a decorator."""

    def mark(test: Test) -> Test:
        for one in marks(name, among, of):
            test = one(test)
        return test

    return mark


def takes_minutes(name: str) -> Callable[[Test], Test]:
    """For a test of ``MINUTES``: one of them runs each day, the others in the campaign."""
    return turn(name, MINUTES, "tests of minutes")
