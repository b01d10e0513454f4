"""Habits that are on their way out, and how often each stands in a folder: numbers that only fall.

python -m tests.packaging.baseline      # writes the numbers that have fallen
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

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


def patched_functions(tree: ast.AST) -> Iterator[ast.Call]:
    """Each ``setattr`` of a test that replaces a function or a method of ours.

    A setting (in capitals), a fake, and what Python or a library has may be patched.
    """
    foreign = {alias.asname or alias.name for node in ast.walk(tree) for alias in imported(node)}
    for node in ast.walk(tree):
        is_patch = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "setattr"
        )
        if is_patch and isinstance(node, ast.Call) and node.args:
            target, *more = node.args
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                owner, _, name = target.value.rpartition(".")
                ours = owner.startswith("abs_")
            else:
                named = more[0] if more else None
                name = str(named.value) if isinstance(named, ast.Constant) else ""
                first = ast.unparse(target).partition(".")[0]
                ours = first not in foreign and not first.startswith("Fake")
            if ours and name and not name.isupper():
                yield node


def imported(node: ast.AST) -> Iterator[ast.alias]:
    """What an import brings that is not ours."""
    if isinstance(node, ast.Import):
        yield from (alias for alias in node.names if not alias.name.startswith(("abs_", "tests")))
    elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(("abs_", "tests")):
        yield from node.names


def counted() -> Counts:
    """How often each habit stands in each folder."""
    vague, patched = Counter[str](), Counter[str]()
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*.py"):
            name = "/".join(path.relative_to(ROOT).parts[: 1 if folder == "abs_core" else 2])
            vague[name] += len([*vague_names(ast.parse(path.read_text()))])
    for path in (ROOT / "tests").rglob("*.py"):
        part = path.relative_to(ROOT / "tests").parts[0]
        name = "tests" if part.endswith(".py") else f"tests/{part}"
        patched[name] += len([*patched_functions(ast.parse(path.read_text()))])
    return {"vague names": +vague, "patched functions": +patched}


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
    FILE.write_text(json.dumps(lowered(counted(), read()), indent=1, sort_keys=True) + "\n")
