"""Where a test replaces a function or a method of ours, whichever way it takes.

A setting (in capitals), a fake, and what Python or a library has may be replaced: also where a module
of ours has imported it. A bug that ``tests.planted`` plants is counted apart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.roots import FOLDERS

ROOT = Path(__file__).parents[2]
ROOMS = (ROOT, *(ROOT / folder for folder in FOLDERS))
FAKES = ("abs_testing.fakes", "tests")
"""What is in these may be replaced: it stands in for something already."""

WAYS = ("setattr", "delattr", "object", "multiple", "patch", "setitem")
"""Calls that replace something, by the last part of their name."""

METHOD = re.compile(r"#.*type: ignore\[[^]]*method-assign")
"""What mypy wants to see where an attribute takes the place of a method."""


class Patches:
    """Finds the replacements in one file.

    Args:
        module: the file's own name, from which relative imports begin.
    """

    def __init__(self, source: str, module: str = "tests.test") -> None:
        self._nodes = [*ast.walk(ast.parse(source))]
        self._lines = source.splitlines()
        self._names = dict(bindings(self._nodes, module))
        self._kinds = {name: kind for name, kind in self._variables() if name not in self._names}

    def functions(self) -> Iterator[ast.AST]:
        """Each place where a function or a method of ours is replaced."""
        for node in self._nodes:
            if isinstance(node, ast.Call):
                place = self._called(node)
                if place is not None and self._is_ours(place):
                    yield node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and self._is_replaced(target):
                        yield target

    def planted(self) -> int:
        """How many blocks have planted bugs."""
        calls = (node.func for node in self._nodes if isinstance(node, ast.Call))
        return sum(isinstance(called, ast.Name) and called.id == "planted" for called in calls)

    def _called(self, call: ast.Call) -> str | None:
        """The dotted name of what a call replaces; None if it replaces nothing."""
        way = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        if way not in WAYS or not call.args:
            return None
        if way in ("object", "multiple") and not ast.unparse(call.func).endswith(f"patch.{way}"):
            return None
        first, *more = call.args
        if way in ("setattr", "delattr", "object", "multiple"):
            if isinstance(first, ast.Constant):
                return str(first.value)
            if isinstance(first, ast.JoinedStr):
                return ast.unparse(first)[2:-1]
            return f"{self._owner(first)}.{_text(more[0]) if more else '?'}"
        if way == "patch" and isinstance(first, ast.Constant):
            return str(first.value)
        if way == "setitem" and more:
            owner = _of_names(first)
            if owner is not None:
                return f"{self._owner(owner)}.{_text(more[0])}"
            if isinstance(first, ast.Name) and not isinstance(more[0], ast.Constant):
                return f"{self._owner(first)}.?"
        return None

    def _is_replaced(self, target: ast.Attribute) -> bool:
        """Whether an assignment to an attribute replaces a function or a method of ours."""
        first = ast.unparse(target.value).partition(".")[0]
        line = self._lines[target.lineno - 1 : (target.end_lineno or 0)]
        if first not in self._names and not any(METHOD.search(text) for text in line):
            return False
        return self._is_ours(f"{self._owner(target.value)}.{target.attr}")

    def _owner(self, owner: ast.expr) -> str:
        """The dotted name of whose attribute is replaced; ``abs_?`` where nothing here tells."""
        first, _, rest = ast.unparse(owner).partition(".")
        name = self._names.get(first) or self._kinds.get(first) or "abs_?"
        return f"{name}.{rest}" if rest else name

    def _is_ours(self, name: str) -> bool:
        place = defined(name)
        return place.startswith("abs_") and not (
            place.startswith(FAKES) or place.rpartition(".")[2].isupper()
        )

    def _variables(self) -> Iterator[tuple[str, str]]:
        """Variables of which an annotation or a call tells the class."""
        for node in self._nodes:
            if isinstance(node, ast.arg) and node.annotation is not None:
                pairs = [(node.arg, node.annotation)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                pairs = [(node.target.id, node.annotation)]
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                pairs = [(t.id, node.value.func) for t in node.targets if isinstance(t, ast.Name)]
            else:
                continue
            for name, kind in pairs:
                if not isinstance(kind, ast.Name | ast.Attribute):
                    continue
                first, _, rest = ast.unparse(kind).partition(".")
                # ``Any`` tells of no class.
                known = self._names.get(first, "typing.")
                if rest == "" and first[:1].isupper() and not known.startswith("typing."):
                    yield name, known


def _text(name: ast.expr) -> str:
    return str(name.value) if isinstance(name, ast.Constant) else "?"


def _of_names(table: ast.expr) -> ast.expr | None:
    """Whose names a table has: ``vars(x)``, ``x.__dict__``; None if it is another table."""
    if isinstance(table, ast.Call) and ast.unparse(table.func) == "vars" and table.args:
        return table.args[0]
    is_names = isinstance(table, ast.Attribute) and table.attr == "__dict__"
    return table.value if is_names and isinstance(table, ast.Attribute) else None


def bindings(nodes: Iterable[ast.AST], module: str) -> Iterator[tuple[str, str]]:
    """Each name that one of these imports, or defines as a class, and its dotted name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.partition(".")[0],
                    (alias.name if alias.asname else alias.name.partition(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(module.split(".")[: -node.level]) if node.level else ""
            source = ".".join(filter(None, (above, node.module)))
            yield from (
                (alias.asname or alias.name, f"{source}.{alias.name}") for alias in node.names
            )
        elif isinstance(node, ast.ClassDef):
            yield node.name, f"{module}.{node.name}"


def defined(name: str) -> str:
    """The dotted name under which this is defined, through all modules that import it."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        names = exported(".".join(parts[:length]))
        if names is not None:
            first, *rest = parts[length:]
            source = names.get(first)
            return name if source is None or source == name else defined(".".join((source, *rest)))
    return name


@cache
def exported(module: str) -> dict[str, str] | None:
    """What a module of this repository imports at its top; None: it is not one of them."""
    for room in ROOMS:
        path = room.joinpath(*module.split("."))
        package = path / "__init__.py"
        file = package if package.is_file() else path.with_suffix(".py")
        if file.is_file():
            inner = f"{module}.__init__" if file is package else module
            return dict(bindings(_imports(ast.parse(file.read_text()).body), inner))
    return None


def _imports(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The imports of a module's top level, whichever may be missing."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try | ast.If):
            yield from _imports(node.body)
