"""Lines that raise are reached by the everyday unit tests, but for so many; a new one is seen."""

from __future__ import annotations

import pytest

from tests.raises import allowed, measured, more_missed, packages, raise_lines, sources

SOURCE = """
def rule(state):
    if state is None:
        return Refused(
            ValueError("no state"),
        )
    try:
        check(state)
    except KeyError:
        raise
    except ValueError as error:
        raise RuntimeError(
            "wrong",
        ) from error
    return Changed(state)
"""
PATH = "abs_core/rule.py"


def test_each_raise_and_refusal_counts_by_its_first_line() -> None:
    assert raise_lines(SOURCE) == {4, 12}


def test_a_new_raise_that_no_test_reaches_is_named() -> None:
    now = packages({PATH: SOURCE}, {PATH: [2, 3, 4, 7, 8, 12]})
    assert str(now["abs_core"]) == "2 of 2 lines that raise are reached (100.0%)"
    assert more_missed(now, {"abs_core": 0}) == {}
    planted = {PATH: SOURCE + "\n\ndef more():\n    raise ValueError\n"}
    now = packages(planted, {PATH: [2, 3, 4, 7, 8, 12, 18]})
    assert more_missed(now, {"abs_core": 0}) == {"abs_core": [f"{PATH}:19"]}
    assert more_missed(now, {"abs_core": 1}) == {}
    assert more_missed(now, {}) == {"abs_core": [f"{PATH}:19"]}, "a new package may miss none"


def test_every_package_has_its_number() -> None:
    assert allowed().keys() == packages(dict(sources()), {}).keys()


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_the_unit_tests_reach_as_many_raises_as_before() -> None:
    now = measured()
    print(*(f"{name}: {package}" for name, package in now.items()), sep="\n")
    assert more_missed(now, allowed()) == {}


@pytest.mark.campaign
def test_a_raise_that_is_planted_in_the_product_is_seen() -> None:
    """One file of tests, and what it reaches of one module with a raise that nothing calls."""
    now = measured("tests/core/test_cell.py")["abs_core"]
    place = "abs_core/coordinator/cell.py"
    text = dict(sources())[place]
    reached = raise_lines(text) - {int(m.split(":")[1]) for m in now.missed if m.startswith(place)}
    assert reached, "the file's tests reach none"
    planted = packages({place: f"{text}\n\ndef planted():\n    raise KeyError\n"}, {place: reached})
    before = packages({place: text}, {place: reached})
    (new,) = set(planted["abs_core"].missed) - set(before["abs_core"].missed)
    assert new == f"{place}:{len(text.splitlines()) + 4}"
