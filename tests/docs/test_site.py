"""The site is built from the pages as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_broken_link_or_anchor() -> None:
    """``strict`` in mkdocs.yml makes an error of each."""
    made = subprocess.run(
        [sys.executable, "docs/make_site.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    site = ROOT / "build" / "site"
    assert "abs_spark.sink" in (site / "docs/reference/python.html").read_text()
    pages = {page.name for page in (ROOT / "docs").rglob("*.md")}
    listed = (site / "llms.txt").read_text()
    assert sorted(name for name in pages if f"/{name}" not in listed) == []
