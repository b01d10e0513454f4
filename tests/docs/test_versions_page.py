"""The table of versions is what the tests run."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HINT = "run: python -m docs.make_versions"


def made() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "make_versions.py"))


def test_the_page_of_versions_is_written_from_what_the_tests_run() -> None:
    assert (ROOT / "docs" / "reference" / "versions.md").read_text() == made()["page"](), HINT
