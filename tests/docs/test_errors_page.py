"""The page of errors is what `abs explain-error` says, and its signs are the product's words."""

from __future__ import annotations

import runpy
from pathlib import Path

from abs_cli.explain_error import cases
from tests.roots import PRODUCT

ROOT = Path(__file__).parents[2]


def test_the_page_of_errors_is_written_from_the_errors_as_they_are() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_errors.py"))
    found = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert found == made["written"](), "run: python docs/make_errors.py"


def test_each_sign_of_a_situation_is_a_part_of_a_message_of_the_product() -> None:
    folders = PRODUCT
    code = "".join(page.read_text() for name in folders for page in (ROOT / name).rglob("*.py"))
    assert [case.sign for case in cases() if case.sign not in code] == []
