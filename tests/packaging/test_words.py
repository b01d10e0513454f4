"""One word for one thing: names that meant many things, and sentences that told nothing, stay gone."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping

import pytest

from abs_audit import contracts as audited
from abs_core import contracts, source
from abs_testing import harness
from tests.packaging.test_modules import ROOT, modules
from tests.roots import PRODUCT

INSTEAD = {
    r"^class (Place|Lanes?|Target|Tables?|Identity|Cells?)\b": "say whose: RegisterSite, LakeTable",
    r"^class (Kept|Told\w*|Work|Out|Asking|Driven|Sealed)\b": "a noun that says what it is",
    r"^ *_?(MOST|LEAST|LONGEST|HIGHEST|LOWEST)(_\w+)? = ": "MAX_ or MIN_",
    r"^ *_?[A-Z][A-Z_]*_(MAX|MIN) = ": "MAX_ or MIN_ before it",
    r"(?i)if it is none\b": "if the name is not that of a manifest",
}
"""What stands no more in a module, and what to write."""

ROLES = {"Inventory", "GoingBack", "Holding", "Refusing", "Remaking", "Restoring"}
"""Interfaces that code asks an object for. What else may be left out is a method with a default.

The last four are of harnesses: with a default, a rule that was not tried would count as kept.
"""

_INTERFACES = {
    name
    for module in (contracts, source, audited, harness)
    for name, of in vars(module).items()
    if getattr(of, "__module__", "") == module.__name__
    and (inspect.isabstract(of) or getattr(of, "_is_protocol", False))
}
_ASKED = re.compile(r"isinstance\((?:[^()]|\([^()]*\))+, \(?([\w.,| ]+)\)")


OTHERS = {
    *("BuiltInPartitioner", "JacksonParser", "OPENLINEAGE_URL", "PutIf", "PythonUtils"),
    *("TopicDescription", "TransactionState", "Utils", "connections", "from_avro", "org"),
    *("pkg_resources", "python_streaming_source_runner", "spark"),
    *("unavailable", "xml_recv"),
}
"""Names of other projects that docstrings show, or the first part of one."""

_SHOWN = re.compile(r"``([A-Za-z_][\w.]*)(?:\(\))?``")


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


def gone(texts: Mapping[str, str]) -> set[tuple[str, str]]:
    """Names in docstrings that no code has, with the path."""
    known, shown = _files(), set()
    for path, text in texts.items():
        tree = ast.parse(text)
        docs = set(_docstrings(tree))
        shown |= {(path, name) for doc in docs for name in _SHOWN.findall(str(doc.value))}
        known |= {word for node in ast.walk(tree) if node not in docs for word in _words(node)}
    return {
        (path, name) for path, name in shown if not known.issuperset(name.strip(".").split("."))
    }


def _files() -> set[str]:
    folders = (
        *PRODUCT,
        "tests",
        "benchmarks",
    )
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {part for path in files for part in (path.stem, path.parent.name)}


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Those of attributes, too."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield text


def _words(node: ast.AST) -> list[str]:
    """The names in a piece of code, and the words in its texts."""
    match node:
        case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
            return [text]
        case ast.FunctionDef(name=text) | ast.ClassDef(name=text) | ast.keyword(arg=str(text)):
            return [text]
        case ast.alias(name=text) | ast.Constant(value=str(text)):
            return re.findall(r"\w+", text)
    return []


def test_a_name_that_a_docstring_shows_is_there() -> None:
    found = gone(modules())
    assert {one for one in found if one[1].split(".")[0] not in OTHERS} == set()
    assert {name.split(".")[0] for _, name in found} >= OTHERS, "a name that no docstring shows"


def test_a_name_that_is_gone_is_found() -> None:
    planted = (
        '"""See ``register_session.end``, ``session.end`` and ``abs_core.model``."""\nend = 1\n'
    )
    assert gone({"planted.py": planted}) == {("planted.py", "register_session.end")}
