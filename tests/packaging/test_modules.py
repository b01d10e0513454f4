"""The product's modules: none is too long to read, and none stands twice."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.roots import PRODUCT

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
