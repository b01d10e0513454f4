"""Which cases of a large product ``make test`` runs: a fixed sample, the same on every day and machine.

``make test`` runs the sample, ``make campaign`` runs what the sample leaves out. Which cases are drawn
depends on the product's name only, so a green run says the same of a commit today and next year, and a
bisection finds the commit.

What tests draw at random (hypothesis, simulated histories, options) begins at one fixed seed too.
``ABS_TEST_SEED=7 make test`` draws from another seed; a campaign takes a new one each time and
prints it.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

SEED = 20261126
"""The seed of ``make test``."""

T = TypeVar("T")

CONSTANTS_OF_MODULES = providers._get_local_constants
"""What hypothesis itself would draw, too: a campaign does."""


def seed() -> int:
    """The seed of this run: ``ABS_TEST_SEED``, or the fixed one."""
    return int(os.environ.get("ABS_TEST_SEED") or SEED)


def draw_no_constants_of_loaded_modules() -> None:
    """Let hypothesis draw the same for one seed, whatever a process has imported by then.

    It takes numbers and texts of the modules that are loaded, too. A worker has loaded what the files
    before needed, so a test drew other values in each run, and one run in many failed. The function is
    a private one: a test holds that it does this.
    """
    none = Constants()
    providers._get_local_constants = lambda: none


def cut(items: Iterable[T], size: int, of: str) -> list[T]:
    """So many of the items, in their order; all of them where there are no more.

    Args:
        of: the name of the product: two products of one length are cut differently.
    """
    all_of_them = list(items)
    if len(all_of_them) <= size:
        return all_of_them
    # The same cases for every seed: a sample that moves is green for one commit and red for the next.
    chosen = random.Random(of).sample(range(len(all_of_them)), size)
    return [all_of_them[number] for number in sorted(chosen)]


def members(items: Iterable[T], size: int, of: str) -> list[ParameterSet]:
    """All of a product, for ``parametrize``: those of the sample, and the others as the campaign's.

    For the values of one argument or fixture; ``cases`` is for a whole test.
    """
    all_of_them = list(items)
    chosen = cut(range(len(all_of_them)), size, of)
    return [
        pytest.param(item, marks=() if number in chosen else pytest.mark.campaign)
        for number, item in enumerate(all_of_them)
    ]


def cases(size: int, of: str = "") -> pytest.MarkDecorator:
    """For a test whose cases are one rule in several ways: so many in the sample.

    Args:
        of: the name of an argument: so many of its values, for each combination of the others. So each
            position, or fault, is in the sample under one of the protocols.
    """
    return pytest.mark.cases(size, of)


def tests(size: int) -> pytest.MarkDecorator:
    """For a module of long tests: so many of its tests are in the sample, with all of their cases."""
    return pytest.mark.tests(size)


def deal(items: Sequence[pytest.Item]) -> None:
    """Mark as the campaign's what the sample leaves out of what ``tests`` and ``cases`` are about."""
    sizes: dict[tuple[object, ...], int] = {}
    members: dict[tuple[object, ...], dict[str, list[pytest.Item]]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("campaign") is not None:
            continue
        test = item.nodeid.split("[")[0]
        mark = item.get_closest_marker("tests")
        if mark is not None and item.get_closest_marker("always") is None:
            (sizes[item.path,],) = mark.args
            members[item.path,].setdefault(test, []).append(item)
        if mark := item.get_closest_marker("cases"):
            size, of = mark.args
            group = (test, *_others(item, of))
            sizes[group] = size
            members[group][item.nodeid] = [item]
    for group, named in members.items():
        # The first name of a group is the same in all processes of a run.
        chosen = cut(named, sizes[group], of=next(iter(named)))
        for item in chain.from_iterable(named[name] for name in named if name not in chosen):
            item.add_marker(pytest.mark.campaign)


def _others(item: pytest.Item, of: str) -> Iterator[int]:
    """Which values the case has of the test's other arguments than this one, if there is one."""
    assert isinstance(item, pytest.Function)
    given = item.callspec.params
    assert not of or of in given, f"{item.nodeid} has no argument {of}"
    # A value is one object in all cases of a test; not each can be hashed.
    return (id(value) for name, value in sorted(given.items()) if of and name != of)


def hand(items: Iterable[T], number: int, hands: int, of: str) -> list[T]:
    """What one of so many ways gets where rules are dealt among them: each rule goes to one way.

    So the sample has each rule, under one of the ways; the campaign has all under all.
    """
    all_of_them = list(items)
    order = random.Random(of).sample(range(len(all_of_them)), len(all_of_them))
    return [all_of_them[place] for place in sorted(order[number::hands])]
