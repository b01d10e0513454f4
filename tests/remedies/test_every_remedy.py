"""Every way out that the product names, and that can lose or double rows, has a test that applies it.

``remedies.txt`` maps each text (see ``texts``) to its test. What only corrects an option or a right
that the text names is not in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from pathlib import Path

import pytest

from tests.remedies.texts import KINDS, ROOT, kinds_in, texts_of, ways_out

LIST = Path(__file__).with_name("remedies.txt")
WITHOUT = 0
"""How many have no test, each with the reason; may become fewer."""

IN_DOUBT = "tests/cli/test_cli_kafka_in_doubt.py"
HOW_TO = ROOT / "docs" / "how-to"
PAGES = ("operations.md", "when-it-stops.md", "restores.md", "targets.md")
PROCEDURES = {
    "A checkpoint was deleted": "tests/spark/test_spark_stream.py",
    "A file cannot be read": "tests/sources/files/test_files_way_out.py",
    "A batch failed and the query went on": "tests/spark/test_spark_epoch_functions.py",
    "A register is lost": "tests/spark/test_spark_births.py",
    "A target goes back": "tests/cli/test_cli_repair.py",
    "A table was dropped or renamed": "tests/spark/test_spark_missing_table.py",
    "Dead letters at 3 am": "tests/cli/test_cli_dead_letters.py",
    "A target refuses what is decided": "tests/cli/test_cli_accept_loss.py",
    "A job gets another name": "tests/cli/test_cli_moving.py",
    "A job begins again from nothing": "tests/sinks/postgres/test_pg_forgetting.py",
    "Register and checkpoint were restored together": "tests/sinks/lake/test_lake_lookback.py",
    "PostgreSQL fails over, or is restored": "tests/spark/test_spark_restored.py",
    "A job moves to another cluster": "tests/sinks/postgres/test_pg_move.py",
    "Dead letters are gone": "tests/cli/test_cli_dead_letters_elsewhere.py",
    "A job that is gone for good": "tests/remedies/test_removing.py",
    "A job of `protocol=idempotent` on Kafka that is gone for good": IN_DOUBT,
    "A Kafka transaction was lost, or is left open": IN_DOUBT,
}
"""The procedures of the pages with commands that change what is committed, and their tests."""

DESCRIBED = {
    "Commands",
    "Errors",
    "Handles in doubt",
    "How a query ends its run",
    "Tokens of consent",
    "What a job leaves in the target",
}
"""Sections that name such commands without being a procedure: each is tested as its error's remedy."""

Entry = tuple[str, str, str]


def listed(text: str) -> list[Entry]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    parts = [[part.strip() for part in line.split(" | ")] for line in lines]
    return [(kind, place, test) for kind, place, test in parts]


def problems(found: Set[tuple[str, str]], entries: list[Entry]) -> list[str]:
    """What is not listed, listed and not there, or mapped to a test that does not exist."""
    known = {(kind, place) for kind, place, _ in entries}
    told = [f"no test applies it: {kind} | {place}" for kind, place in sorted(found - known)]
    told += [f"no text says it: {kind} | {place}" for kind, place in sorted(known - found)]
    return told + [f"there is no {test}" for *_, test in entries if not is_there(test)]


def is_there(test: str) -> bool:
    if test.startswith("none: "):
        return True
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return False
    tree = ast.parse((ROOT / path).read_text())
    return any(isinstance(n, ast.FunctionDef) and n.name == name for n in ast.walk(tree))


def test_every_way_out_that_the_product_names_has_a_test_that_applies_it() -> None:
    assert problems(ways_out(), listed(LIST.read_text())) == []


def test_those_without_a_test_become_fewer_only() -> None:
    assert sum(test.startswith("none: ") for *_, test in listed(LIST.read_text())) == WITHOUT


def sections(page: Path) -> dict[str, str]:
    """Each heading of a page, with the text up to the next heading of any level."""
    parts = re.split(r"^#{1,3} ", page.read_text(), flags=re.MULTILINE)[1:]
    return {title: text for title, _, text in (part.partition("\n") for part in parts)}


def without_a_test(texts: dict[str, str]) -> set[str]:
    """Sections that name a command or a token that changes what is committed, and have no test."""
    return {title for title, text in texts.items() if kinds_in(text)} - set(PROCEDURES) - DESCRIBED


def test_every_procedure_of_the_pages_has_a_test() -> None:
    texts = {title: text for name in PAGES for title, text in sections(HOW_TO / name).items()}
    assert without_a_test(texts) == set()
    assert (set(PROCEDURES) | DESCRIBED) - set(texts) == set()
    assert all((ROOT / test).is_file() for test in PROCEDURES.values())


@pytest.mark.parametrize("level", ["#", "##", "###"])
def test_planted_a_procedure_without_a_test_is_found_at_each_level(
    tmp_path: Path, level: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{level} A new way\n\nSet the option `adopt`.\n\n{level} Another\n\nWait.\n")
    assert without_a_test(sections(page)) == {"A new way"}


NEW = """
def refuse(job):
    raise IdentityError("It is gone.", remedy=f"set the option adopt={job}, or run "
        f"`abs job reset {job}` and delete the checkpoint.")
"""


def test_planted_a_new_way_out_without_a_test_is_found() -> None:
    found = {(k, f"new:{w}") for w, text in texts_of(ast.parse(NEW)) for k in kinds_in(text)}
    assert {kind for kind, _ in found} == {"adopt", "reset", "drop"}
    told = problems(ways_out() | found, listed(LIST.read_text()))
    assert len(told) == 3
    assert "no test applies it: adopt | new:refuse" in told


def test_planted_a_test_that_is_gone_and_a_text_that_is_gone_are_found() -> None:
    entries = [
        *listed(LIST.read_text()),
        ("adopt", "gone:place", "tests/core/test_births.py::gone"),
    ]
    assert problems(ways_out(), entries) == [
        "no text says it: adopt | gone:place",
        "there is no tests/core/test_births.py::gone",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_is_looked_for_in_vain(kind: str) -> None:
    assert any(found == kind for found, _ in ways_out())
