"""The product's modules: none is too long to read, none stands twice, no two import each other."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.roots import FOLDERS, PRODUCT

ROOT = Path(__file__).parents[2]
MAX_LINES = 400
_DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)


def modules() -> dict[str, str]:
    """The text of each module, by its path."""
    files = [path for package in PRODUCT for path in (ROOT / package).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def too_long(texts: Mapping[str, str]) -> list[str]:
    return [path for path, text in texts.items() if text.count("\n") > MAX_LINES]


def copies(texts: Mapping[str, str]) -> list[list[str]]:
    """Modules with the same code, whatever their comments; not those without a definition."""
    alike = defaultdict(list)  # by what they define: only these are worth parsing
    for path, text in texts.items():
        if names := tuple(_DEFINED.findall(text)):
            alike[names].append(path)
    same = defaultdict(list)
    for paths in alike.values():
        for path in paths if len(paths) > 1 else ():
            same[ast.dump(ast.parse(texts[path]))].append(path)
    return [paths for paths in same.values() if len(paths) > 1]


def names(texts: Mapping[str, str]) -> dict[str, str]:
    """The text of each module, by its name."""
    named = {}
    for path, text in texts.items():
        parts = Path(path).with_suffix("").parts
        parts = parts[1:] if parts[0] in FOLDERS else parts
        named[".".join(parts).removesuffix(".__init__")] = text
    return named


def imported(text: str, names: Collection[str]) -> Iterator[str]:
    """Modules that are imported: at the top, in a function, or for the checker of types only."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in names else node.module


def circle(named: Mapping[str, str]) -> list[str]:
    """Modules of which each imports the next, from one to the same one; empty if there are none."""
    arrows = {name: {*imported(text, named)} - {name} for name, text in named.items()}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return [*error.args[1]]
    return []


def test_no_module_has_more_than_400_lines() -> None:
    assert not too_long(modules())


def test_no_module_stands_twice() -> None:
    found = modules()
    assert len(found) > len(PRODUCT)
    assert not copies(found)


def test_a_copy_and_a_long_module_are_found() -> None:
    found = modules()
    path, text = next((p, t) for p, t in found.items() if "\ndef " in t)
    assert copies({**found, "copy.py": f"# a copy\n{text}"}) == [[path, "copy.py"]]
    assert too_long({**found, "long.py": "x = 1\n" * (MAX_LINES + 1)}) == ["long.py"]


def test_no_modules_import_each_other() -> None:
    assert not circle(names(modules()))


@pytest.mark.parametrize(
    "back",
    [
        "from abs_sinks.b import B",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from abs_sinks.b import B",
        "def later() -> None:\n    from abs_sinks import b",
    ],
)
def test_a_planted_circle_is_found(back: str) -> None:
    planted = names({"sinks/abs_sinks/a.py": back, "sinks/abs_sinks/b.py": "import abs_sinks.a"})
    assert {*circle(planted)} == {"abs_sinks.a", "abs_sinks.b"}
