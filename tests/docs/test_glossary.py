"""The glossary: each word has one line and one place in the code, and no name says it otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.packaging.test_modules import modules

PAGE = Path(__file__).parents[2] / "docs/reference/glossary.md"
VOCABULARY = {
    *("job", "lineage", "run", "generation", "epoch", "writer", "handle", "committable"),
    *("decision", "register", "roll forward", "sweep", "in doubt"),
    *("dead letter", "place", "bury", "give", "check", "refused rows", "replay"),
}
"""Words that must have a line: those of the protocol, and those of dead letters."""


class Word(NamedTuple):
    word: str
    place: str
    others: tuple[str, ...]


def words(page: str) -> list[Word]:
    lines = [line.split("|")[1:5] for line in page.splitlines() if line.startswith("| ")][2:]
    return [
        Word(word.strip(), place.strip().strip("`"), tuple(re.findall(r"\w+", others)))
        for word, _, place, others in lines
    ]


def missing(place: str) -> bool:
    module, _, name = place.partition(":")
    try:
        return not hasattr(import_module(module), name)
    except ModuleNotFoundError:
        return True


def parts_of_names(text: str) -> Iterator[str]:
    """The words in the names of functions, classes, parameters and variables."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield from re.findall(r"[A-Z]?[a-z]+", name)
            case ast.Name(id=name, ctx=ast.Store()):
                yield from re.findall(r"[A-Z]?[a-z]+", name)


def said_otherwise(listed: list[Word], texts: Mapping[str, str]) -> set[tuple[str, str]]:
    """Words that a name has, and the glossary says it should not, with the path."""
    others = {other for word in listed for other in word.others}
    return {
        (path, part.lower())
        for path, text in texts.items()
        for part in parts_of_names(text)
        if part.lower() in others
    }


def test_each_word_has_one_line_and_a_place_in_the_code() -> None:
    listed = words(PAGE.read_text())
    names = [word.word for word in listed]
    assert len(names) == len({*names})
    assert {*names} >= VOCABULARY
    assert [word.word for word in listed if missing(word.place)] == []


def test_no_name_in_the_code_says_a_word_of_the_glossary_otherwise() -> None:
    assert said_otherwise(words(PAGE.read_text()), modules()) == set()


def test_a_word_without_a_place_and_a_name_that_says_it_otherwise_are_found() -> None:
    planted = [Word("check", "abs_sinks.checking:Nowhere", ("judge",))]
    assert missing(planted[0].place)
    assert missing("abs_sinks.nowhere:Letters")
    texts = {
        "a.py": "class JudgeWriter: ...",
        "b.py": "def checked(judge_of): ...",
        "c.py": "x = 1",
    }
    assert said_otherwise(planted, texts) == {("a.py", "judge"), ("b.py", "judge")}
