"""One word for one thing: names that meant many things, and sentences that told nothing, stay gone."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

import pytest

from abs_audit import contracts as audited
from abs_core import contracts, source
from abs_testing import harness
from tests.packaging.test_modules import modules

INSTEAD = {
    r"^class (Place|Lanes?|Target|Tables?|Identity|Cells?)\b": "say whose: RegisterSite, LakeTable",
    r"^class (Kept|Told\w*|Work|Out|Asking|Driven|Sealed)\b": "a noun that says what it is",
    r"^ *_?(MOST|LEAST|LONGEST|HIGHEST|LOWEST)(_\w+)? = ": "MAX_ or MIN_",
    r"^ *_?[A-Z][A-Z_]*_(MAX|MIN) = ": "MAX_ or MIN_ before it",
    r"(?i)if it is none\b": "if the name is not that of a manifest",
}
"""What stands no more in a module, and what to write."""

ROLES = {"Inventory", "Holding", "Refusing", "Restoring"}
"""Interfaces that code asks an object for. What else may be left out is a method with a default.

The last three are of harnesses: with a default, a rule that was not tried would count as kept.
"""

_INTERFACES = {
    name
    for module in (contracts, source, audited, harness)
    for name, of in vars(module).items()
    if getattr(of, "__module__", "") == module.__name__
    and (inspect.isabstract(of) or getattr(of, "_is_protocol", False))
}
_ASKED = re.compile(r"isinstance\((?:[^()]|\([^()]*\))+, \(?([\w.,| ]+)\)")


def old_words(texts: Mapping[str, str]) -> list[str]:
    return [
        f"{path}: {found[0].strip()}: {instead}"
        for path, text in texts.items()
        for old, instead in INSTEAD.items()
        for found in re.finditer(old, text, re.MULTILINE)
    ]


def roles(texts: Mapping[str, str]) -> set[str]:
    """Interfaces of the contracts that code asks an object for."""
    asked = [kinds for text in texts.values() for kinds in _ASKED.findall(text)]
    return _INTERFACES & {name for kinds in asked for name in re.findall(r"\w+", kinds)}


def test_no_old_word_is_used_again() -> None:
    assert old_words(modules()) == []


@pytest.mark.parametrize(
    "planted",
    [
        "class Place:\n    pass",
        "class Table(Protocol):\n    pass",
        "class ToldWriter:\n    pass",
        "_MOST_ROWS = 3",
        "KEY_MAX = 1024",
        '"""The handle; None if it is none."""',
    ],
)
def test_an_old_word_is_found(planted: str) -> None:
    assert len(old_words({"planted.py": planted})) == 1


def test_what_an_implementation_may_leave_out_is_a_method_with_a_default() -> None:
    assert roles(modules()) == ROLES


def test_a_role_that_is_asked_for_is_found() -> None:
    planted = {"planted.py": "if isinstance(self.sink, contracts.Committer):"}
    planted["also.py"] = "found = at if isinstance(made(at), (Source, source.Reader)) else None"
    assert roles(planted) == {"Committer", "Reader", "Source"}
