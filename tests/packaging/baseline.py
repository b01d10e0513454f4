"""Habits that are on their way out, and how often each stands in a folder: numbers that only fall.

python -m tests.packaging.baseline      # writes the numbers that have fallen
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from tests.packaging.patches import Patches
from tests.roots import PRODUCT

ROOT = Path(__file__).parents[2]

FILE = Path(__file__).with_suffix(".json")
Counts = Mapping[str, Mapping[str, int]]
VAGUE = {"found", "given", "told", "known", "what", "each"}
"""Names that say how a value came about, or nothing, instead of what it is."""


def vague_names(tree: ast.AST) -> Iterator[ast.Name | ast.arg]:
    """Each variable or parameter of these names; a variable ``found`` may stand in a search."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        searches = function.name.lstrip("_").startswith(("find", "search", "look", "found"))
        for node in own_nodes(function):
            if isinstance(node, ast.arg) and node.arg in VAGUE:
                yield node
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                allowed = searches and node.id == "found"
                yield from [node] if node.id in VAGUE and not allowed else []


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own_nodes(child)


def signatures(trees: Iterable[ast.AST]) -> set[str]:
    """Names of functions and classes of ours that never take any number of arguments (``*args``)."""
    fixed, open_ = set[str](), set[str]()
    classes: list[ast.ClassDef] = []
    for node in chain.from_iterable(map(ast.walk, trees)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            (open_ if node.args.vararg else fixed).add(node.name)
        elif isinstance(node, ast.ClassDef):
            classes.append(node)
    ours = {node.name for node in classes}
    for node in classes:
        if made := [
            f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"
        ]:
            (open_ if made[0].args.vararg else fixed).add(node.name)
            continue
        # A class without an ``__init__`` of its own takes what a library's class takes.
        bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
        (fixed if bases <= ours | _PLAIN else open_).add(node.name)
    return fixed - open_


_LOGGERS = {"log", "_log", "logger"}
"""Names of loggers, whose methods take any number of values."""

_PLAIN = {"ABC", "Generic", "NamedTuple", "Protocol", "Exception"}
"""Bases that take no arguments of their own, or those that the class declares."""


def hidden_parameters(tree: ast.AST, fixed: Collection[str]) -> Iterator[ast.Call]:
    """Each call that gives a tuple for parameters (``f(*x)``), so that nobody can follow them.

    Not of a library's functions, nor with a tuple that is written there (``f(*(rows, error))``).
    """
    foreign = _foreign(tree)
    for holder, node in _calls(tree):
        hidden = [a for a in node.args if isinstance(a, ast.Starred) and not _is_written(a.value)]
        if not hidden:
            continue
        called = node.func
        if ast.unparse(called).endswith("partial"):
            called = node.args[0]
        root = called
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in foreign | _LOGGERS:
            continue
        name = called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)
        if (holder if name == "cls" else name) in fixed:
            yield node


def _is_written(value: ast.expr) -> bool:
    return isinstance(value, ast.Tuple | ast.List)


def _calls(tree: ast.AST, holder: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Each call, and the class that it stands in."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Call):
            yield holder, child
        yield from _calls(child, child.name if isinstance(child, ast.ClassDef) else holder)


def _foreign(tree: ast.AST) -> set[str]:
    """The names that a module imports from what is not ours."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("abs_"):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {
                (alias.asname or alias.name).partition(".")[0]
                for alias in node.names
                if not alias.name.startswith("abs_")
            }
    return names


def counted() -> Counts:
    """How often each habit stands in each folder."""
    vague, patched, hidden = Counter[str](), Counter[str](), Counter[str]()
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    trees = {path: ast.parse(path.read_text()) for path in files}
    fixed = signatures(trees.values())
    for path, tree in trees.items():
        parts = path.relative_to(ROOT).parts
        name = "/".join(parts[: 1 if parts[0] == "abs_core" else 2])
        vague[name] += len([*vague_names(tree)])
        hidden[name] += len([*hidden_parameters(tree, fixed)])
    for path, patches in tests():
        part = path.relative_to(ROOT / "tests").parts[0]
        name = "tests" if part.endswith(".py") else f"tests/{part}"
        patched[name] += len([*patches.functions()])
    return {
        "vague names": +vague,
        "patched functions": +patched,
        "parameters in a tuple": +hidden,
    }


def tests() -> Iterator[tuple[Path, Patches]]:
    """Each file of the tests, and what it replaces."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name == "planted.py":
            continue  # the door itself
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield path, Patches(path.read_text(), module)


def lowered(now: Counts, before: Counts) -> Counts:
    """The baseline for what stands there now: no number rises, and a folder that is gone has none."""
    return {
        habit: {name: min(n, before.get(habit, {}).get(name, n)) for name, n in folders.items()}
        for habit, folders in now.items()
    }


def read() -> Counts:
    document: Counts = json.loads(FILE.read_text())
    return document


if __name__ == "__main__":
    blocks = sum(patches.planted() for _, patches in tests())
    print(f"{blocks} blocks with planted bugs, which are not counted")
    FILE.write_text(json.dumps(lowered(counted(), read()), indent=1, sort_keys=True) + "\n")
