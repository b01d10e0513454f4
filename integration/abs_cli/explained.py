"""The situations of ``errors.toml``: what an error means, and how it is solved."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from abs_core.errors import AbsError


@dataclass(frozen=True, slots=True)
class Case:
    """One situation that an error reports.

    Args:
        code: of the error's class.
        meaning: what happened, and what it did to the data.
        steps: what to do, in this order; a command stands in backticks.
        sign: words of the error's text by which the situation is told from others of the same code;
            empty for the code's general case.
        more: page of the documentation, with its anchor.
    """

    code: str
    meaning: str
    steps: tuple[str, ...]
    sign: str = ""
    more: str = ""


@cache
def cases() -> tuple[Case, ...]:
    """All of them, in the order of the page."""
    content = tomllib.loads((files("abs_cli") / "errors.toml").read_text())
    return tuple(Case(**{**one, "steps": tuple(one["steps"])}) for one in content["case"])


def case_of(code: str, text: str) -> Case | None:
    """The situation that a text of this code reports; None for an unknown code."""
    known = [case for case in cases() if case.code == code]
    told = [case for case in known if case.sign and case.sign in text]
    return next(iter(told + [case for case in known if not case.sign]), None)


def kinds(root: type[AbsError] = AbsError) -> Iterator[type[AbsError]]:
    """The class and all below it that have a code of their own."""
    if "code" in vars(root):
        yield root
    for below in root.__subclasses__():
        yield from kinds(below)
