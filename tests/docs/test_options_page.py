"""The page of options is what the code has."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_options_is_written_from_the_code_as_it_is() -> None:
    made = runpy.run_path(str(DOCS / "make_options.py"))
    found = (DOCS / "reference" / "options.md").read_text()
    assert found == made["written"](), "run: python docs/make_options.py"


def test_an_option_without_a_line_on_the_page_is_an_error() -> None:
    made = runpy.run_path(str(DOCS / "make_options.py"))
    title, note, options, lines = made["SECTIONS"][0]
    less = {name: line for name, line in lines.items() if name != "job"}
    with pytest.raises(ValueError, match=r"All sinks: .*job"):
        made["written"](((title, note, options, less),))
