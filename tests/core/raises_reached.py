"""A plugin of pytest: notes which ``raise`` of the product's modules a test has reached.

    REACHED=FILE python -m pytest -p tests.core.raises_reached TESTS

A ``Refused(...)`` of the pure rules counts as one. The modules are compiled with a note at each. The
file gets a line of module, function and number in it, and of the test; also from forked processes.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import TypeVar

from tests.roots import FOLDERS

ROOT = Path(__file__).parents[2]
ROOMS = (".", *FOLDERS)
NOTED = "__abs_raise_reached__"

T = TypeVar("T")


class Noting(ast.NodeTransformer):
    """Finds each ``raise`` and ``Refused(...)`` of a module, and has it noted by its name."""

    def __init__(self, module: str) -> None:
        self.names: list[str] = []
        self._function = module
        self._counts: Counter[str] = Counter()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer, self._function = self._function, f"{self._function}.{node.name}"
        self.generic_visit(node)
        self._function = outer
        return node

    visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if node.exc is not None:
            node.exc = self._noted(node.exc)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        refused = isinstance(node.func, ast.Name) and node.func.id == "Refused"
        noted = self._noted(node) if refused else node
        self.generic_visit(node)
        return noted

    def _noted(self, value: ast.expr) -> ast.expr:
        self._counts[self._function] += 1
        name = f"{self._function} {self._counts[self._function]}"
        self.names.append(name)
        call = ast.Call(ast.Name(NOTED, ast.Load()), [ast.Constant(name), value], [])
        return ast.fix_missing_locations(ast.copy_location(call, value))


def module_of(path: Path) -> str | None:
    """The name of a module of the product; None for all other files."""
    for room in ROOMS:
        folder = ROOT / room
        if path.is_relative_to(folder) and path.relative_to(folder).parts[0].startswith("abs_"):
            return ".".join(path.relative_to(folder).with_suffix("").parts)
    return None


def noted(path: Path, module: str) -> tuple[ast.Module, list[str]]:
    """The module with a note at each ``raise``, and their names."""
    tree = ast.parse(path.read_bytes(), str(path))
    noting = Noting(module)
    noting.visit(tree)
    return tree, noting.names


_seen: set[tuple[str, str, int]] = set()


def _note(name: str, value: T) -> T:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].partition("[")[0]
    if (name, test, os.getpid()) not in _seen:
        _seen.add((name, test, os.getpid()))
        with Path(os.environ["REACHED"]).open("a") as file:
            file.write(f"{name}\t{test}\n")
    return value


_get_code = SourceFileLoader.get_code


def _with_notes(self: SourceFileLoader, fullname: str) -> CodeType | None:
    path = Path(self.get_filename(fullname))
    module = module_of(path)
    if module is None:
        return _get_code(self, fullname)
    return compile(noted(path, module)[0], str(path), "exec", dont_inherit=True)


if "REACHED" in os.environ:
    assert "abs_core" not in sys.modules, "this must be loaded before what it looks at"
    setattr(builtins, NOTED, _note)
    SourceFileLoader.get_code = _with_notes  # type: ignore[assignment,method-assign]
