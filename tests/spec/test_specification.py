"""TLC finds every planted bug by the invariant that is named for it, and nothing in the right protocol.

What is explored, and how large it is: ``docs/explanation/proof.md``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.core import test_births_exhaustive as births
from tests.core import test_going_back_explored as going_back
from tests.core.test_protocol_planted_bugs import BUGS
from tests.kit import tlc

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("module", "config"),
    [
        ("abs", "small"),
        ("once", "once"),
        pytest.param("backs", "back", marks=pytest.mark.campaign),
        pytest.param("abs", "mended", marks=pytest.mark.campaign),
        pytest.param("once", "once_large", marks=pytest.mark.campaign),
    ],
)
def test_no_behaviour_breaks_an_invariant(module: str, config: str, tmp_path: Path) -> None:
    checked = tlc.check(module, config, tmp_path)
    print(f"{config}: {checked}")
    assert checked.violated == "", checked.output[-6000:]
    assert checked.distinct > 200, "the specification does too little to prove anything"


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_no_behaviour_of_a_larger_world_breaks_an_invariant(tmp_path: Path) -> None:
    checked = tlc.check("abs", "large", tmp_path, workers=2, long=True)
    print(f"large: {checked}")
    assert checked.violated == "", checked.output[-6000:]


NAMED = {
    "I1": ["commit before the decision"],
    "I2": [
        "finish before all is committed",
        "finish by the epoch's number",
        "an adopter drops open decisions",
        "a run that ends drops what is decided",
    ],
    "I3": ["a finished epoch is decided again"],
    "I4": [
        "the sweep ignores open decisions",
        "one sink is swept by another's state",
        "the sweep holds only handles of the decision's epoch",
        "an ended run sweeps the holder's",
        "the sweep takes its own generation's",
        "the sweep takes higher generations'",
        "abort without abandon",
        "a run that ends sweeps too early",
        "an abandoned epoch is decided",
    ],
    "I5": [
        "no fence at the decision",
        "no fence at the coordinator",
        "a superseded run starts again",
        "a decision without compare",
        "co-commit without compare",
    ],
    "I6": ["a name without generation and run"],
    "I7": ["markers are forgotten before the end", "a lost handle is not looked at twice"],
    "I8": ["an epoch is counted as there by its partitions"],
    "NoneHalf": ["a decision for one of two sinks"],
    "NoneLost": ["a skip without a look at the input", "an epoch is left out"],
}
"""The planted bugs of ``abs.tla``, by the invariant that must find each."""

ELSEWHERE = {
    "a run that ends sweeps before it has raised the generation": "a run that ends sweeps too early",
}
"""What the Python model calls otherwise."""


@pytest.mark.parametrize(
    ("config", "bugs"), [("few", 8), pytest.param("planted", 27, marks=pytest.mark.campaign)]
)
def test_each_planted_bug_is_found_by_the_invariant_that_is_named_for_it(
    config: str, bugs: int, tmp_path: Path
) -> None:
    checked = tlc.check("planted", config, tmp_path)
    print(f"{config}: {checked}")
    found = {bug: invariant for _, bug, invariant in checked.printed}
    assert len(found) == bugs
    assert found.items() <= {bug: name for name, bugs in NAMED.items() for bug in bugs}.items()


def test_every_bug_of_the_python_model_of_the_protocol_is_planted_here_too() -> None:
    here = {bug for bugs in NAMED.values() for bug in bugs}
    assert {ELSEWHERE.get(bug, bug) for bug in BUGS} <= here


LOST = {
    "mint again": "NoneTwice",
    "the certificate comes after the decision": "NoneTwice",
    "the certificate does not name the epoch about to be decided": "NoneTwice",
    "a certificate that cannot be written is a warning": "NoneTwice",
    "one that cannot be written anew is a warning": "NoneTwice",
    "a certificate once a run": "NoneTwice",
    "an epoch that cannot be noted is a warning": "NoneTwice",
    "no look at the target": "Noticed",
    "no look before a decision": "Noticed",
    "a look at the newest epoch only": "Noticed",
    "a mark of what is there at that moment": "Noticed",
    "only the newest marker, where what is prepared outlives it": "Noticed",
    "consent that leaves the marks": "ConsentedOnce",
    "consent that forgets all marks": "Noticed",
    "consent that is taken twice": "Noticed",
    "consent of another restore": "Noticed",
}
TOKENS = {"consent that is taken twice", "consent of another restore"}
"""What the token itself must name; the Python model takes the real one."""
ONCE = {
    "the version of the present generation": "NoneTwice",
    "no condition at the target": "NoneTwice",
    "the application is named by the register": "NoneTwice",
    "another epoch begins before": "I2",
    "finished without a look": "I2",
    "register and certificate are lost together": "NoneLost",
}


@pytest.mark.parametrize(
    ("module", "config", "bugs"),
    [
        ("once", "once_planted", ONCE),
        pytest.param("backs", "back_planted", LOST, marks=pytest.mark.campaign),
    ],
)
def test_so_is_each_of_a_lost_register_and_of_a_write_of_the_user_s_own(
    module: str, config: str, bugs: dict[str, str], tmp_path: Path
) -> None:
    checked = tlc.check(module, config, tmp_path)
    assert {bug: invariant for _, bug, invariant in checked.printed} == bugs


def test_every_wrong_way_of_the_python_model_of_a_lost_register_is_planted_here_too() -> None:
    looks = {name for name, invariant in LOST.items() if invariant != "NoneTwice"}
    assert len(LOST) - len(looks) == len(births.WRONG)
    assert looks - {"no look at the target"} - TOKENS == set(going_back.WRONG)


def test_every_bug_that_is_planted_is_one_of_these() -> None:
    used = {
        name
        for path in ("abs", "worlds", "once", "back")
        for name in re.findall(r'(?:Bug|Is)\("([^"]+)"\)', (tlc.SPEC / f"{path}.tla").read_text())
    }
    assert used == {bug for bugs in NAMED.values() for bug in bugs} | set(ONCE) | set(LOST)
