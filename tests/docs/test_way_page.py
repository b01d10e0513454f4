"""The page of one row's way has the modules that an epoch really enters."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "the-way-of-one-row.md"


def modules(page: str) -> dict[str, set[str]]:
    """Those of each step; what enters a module first may depend on threads."""
    steps = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    return {
        step.splitlines()[0]: set(re.findall(r"^\| \[([^\]]+)\]", step, re.MULTILINE))
        for step in steps
    }


@pytest.mark.services
def test_the_page_names_the_modules_that_a_row_goes_through(database: str) -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_way.py"))
    traced = modules(made["page"](made["way"](database)))
    assert [len(step) > 15 for step in traced.values()] == [True] * 3
    hint = "run: python -m docs.make_way postgresql://..."
    assert modules(PAGE.read_text()) == traced, hint
