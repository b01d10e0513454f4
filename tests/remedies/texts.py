"""Texts of the product that tell a person a way out which can lose or double rows, by kind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from abs_cli.explain_error import cases
from tests.roots import PRODUCT

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("abs_testing", "abs_chaos", "abs_services", "abs_demo")
"""Tools for tests and demos: no job of a user's prints their texts."""

KINDS = {
    "adopt": r"\badopt=|`adopt`|option `?adopt",
    "accept a loss": r"abs in-doubt accept-loss",
    "commit by hand": r"abs in-doubt commit",
    "abort by hand": r"abs in-doubt abort|with --orphan|add --fence",
    "retire": r"abs register retire",
    "rename": r"abs register rename",
    "move": r"abs register move",
    "reset": r"abs job reset",
    "create a table": r"createtable=true",
    "drop": r"\bDROP TABLE|\bdrop its table|delete the checkpoint|delete this one file",
    "trim a checkpoint": r"all of commits/",
    "another job name": r"another (?:`job` name|job name)|give the second call another job",
    "leave data out": r"set failOnDataLoss=false|set skipOffsets"
    "|leave out all rows|read it as it is now",
    "replay": r"(?:set|use) replay=|set `replay`",
    "restore": r"\brestore the (?:register|checkpoint|newest|object|target|table)",
}
"""The kinds of ways out, and what tells one in a text. Others correct what a text names."""

_PATTERNS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}


def kinds_in(text: str) -> list[str]:
    """The kinds of ways out that a text names."""
    return [kind for kind, pattern in _PATTERNS.items() if pattern.search(text)]


def texts_of(tree: ast.AST, within: str = "") -> Iterator[tuple[str, str]]:
    """Each text of a module with the function or class it stands in; without docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        inner = within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{within}.{node.name}".lstrip(".")
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            yield within, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield within, node.value
        yield from texts_of(node, inner) if not isinstance(node, ast.JoinedStr) else ()


def modules() -> Iterator[tuple[str, Path]]:
    """Name and path of each module of the product that may print such a text."""
    for root in PRODUCT:
        for path in sorted((ROOT / root).rglob("*.py")):
            parts = (
                path.relative_to(ROOT if root == "abs_core" else ROOT / root).with_suffix("").parts
            )
            if not set(parts) & set(LEFT_OUT):
                yield ".".join(parts), path


@cache
def ways_out() -> frozenset[tuple[str, str]]:
    """Kind, and the function, class or module whose text names it; or a case of ``errors.toml``."""
    named = {
        (kind, f"{module}:{within}")
        for module, path in modules()
        for within, text in texts_of(ast.parse(path.read_text()))
        for kind in kinds_in(text)
    }
    explained = {
        (kind, f"errors.toml:{case.code} {case.sign}".rstrip())
        for case in cases()
        for step in case.steps
        for kind in kinds_in(step)
    }
    return frozenset(named | explained)
