"""What a text says of a limit is the limit: texts take it from the constant, pages are compared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from abs_core.deadletters import MIN_DEAD
from abs_core.model import MAX_RECENT
from abs_sinks.options import DEADLETTERMAX, limit_text

ROOT = Path(__file__).parents[2]
PRODUCT = ("abs_core", "clients", "sinks", "sources", "integration", "engine", "tools", "kit")

TYPED = re.compile(
    rf"\b(?:last|keeps|remembers|than) {MAX_RECENT}\b|\b{MAX_RECENT} epochs\b"
    rf"|\bfrom {MIN_DEAD} on\b|\bonce {MIN_DEAD}\b"
)
"""A limit that a text has as a number of its own."""

SAID = {
    r"\blast (\d+) epochs\b": MAX_RECENT,
    r"\bthan the last (\d+)\b": MAX_RECENT,
    r"\bof (\d+) epochs were\b": MAX_RECENT,
    r"\bfrom (\d+) on;": MIN_DEAD,
    r"\bonce (\d+) are dead\b": MIN_DEAD,
    r"`deadlettermax` \((?:default )?(\d+) %\)": DEADLETTERMAX * 100,
}


def typed_limits(source: str) -> list[str]:
    """The texts of a module, docstrings included, that have a limit as a number of their own."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    texts = (" ".join(node.value.split()) for node in nodes if isinstance(node.value, str))
    return [text for text in texts if TYPED.search(text)]


def wrong_limits(page: str) -> Iterator[str]:
    """Where a page says another limit than the code has."""
    page = " ".join(page.split())
    for pattern, limit in SAID.items():
        for said in re.finditer(pattern, page):
            if float(said[1]) != limit:
                yield said[0]


def test_no_text_of_the_product_has_a_limit_as_a_number_of_its_own() -> None:
    modules = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    typed = {str(path): typed_limits(path.read_text()) for path in modules}
    assert {path: texts for path, texts in typed.items() if texts} == {}
    assert typed_limits((ROOT / "docs/make_options.py").read_text()) == []


def test_the_pages_say_the_limits_that_the_code_has() -> None:
    pages = {str(path): [*wrong_limits(path.read_text())] for path in (ROOT / "docs").rglob("*.md")}
    assert {path: wrong for path, wrong in pages.items() if wrong} == {}
    text = " ".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    for pattern in SAID:
        assert re.search(pattern, " ".join(text.split())), f"no page says it any more: {pattern}"


@pytest.mark.parametrize(
    "planted",
    [
        f'"""The register keeps {MAX_RECENT} epochs."""',
        f'x = f"{{y:.2%}} of the last {MAX_RECENT} epochs\' rows"',
        f'"from {MIN_DEAD} on, stop the query"',
    ],
)
def test_such_a_number_would_be_found(planted: str) -> None:
    assert typed_limits(planted)


@pytest.mark.parametrize("limit", [MAX_RECENT, MIN_DEAD])
def test_a_page_that_says_another_limit_would_be_found(limit: int) -> None:
    assert not [*wrong_limits(f"deadlettermax: {limit_text()}; over the last {MAX_RECENT} epochs")]
    assert [*wrong_limits(f"{limit_text()}; ".replace(str(limit), str(limit + 1)))]
