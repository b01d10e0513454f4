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
"""Names of variables that say how a value came about, or nothing, instead of what it is."""


def vague_names(tree: ast.AST) -> Iterator[ast.Name]:
    """Each binding of a variable to one of these names; ``found`` may stand in a search."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        searches = function.name.lstrip("_").startswith(("find", "search", "look", "found"))
        for node in own_nodes(function):
            binds = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            allowed = {"found"} if searches else set[str]()
            if binds and isinstance(node, ast.Name) and node.id in VAGUE - allowed:
                yield node


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own_nodes(child)


def signatures(trees: Iterable[ast.AST]) -> set[str]:
    """Names of functions and classes that never take any number of arguments (``*args``)."""
    fixed, open_ = set[str](), set[str]()
    for node in chain.from_iterable(map(ast.walk, trees)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            (open_ if node.args.vararg else fixed).add(node.name)
        elif isinstance(node, ast.ClassDef):
            fixed.add(node.name)
            inner = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.args.vararg]
            open_ |= {node.name for function in inner if function.name == "__init__"}
    return fixed - open_


def hidden_parameters(tree: ast.AST, fixed: Collection[str]) -> Iterator[ast.Call]:
    """Each call that gives a tuple for parameters (``f(*x)``), so that nobody can follow them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(isinstance(a, ast.Starred) for a in node.args):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)
            if name in fixed or name == "cls":
                yield node


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
