"""The way through the core leads to files and names that are there, and takes an hour."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "core-in-an-hour.md"
STOP = re.compile(r"^\| (\d+) \| (.+?) \|", re.MULTILINE)
FILE = re.compile(r"\]\(\.\./\.\./(abs_core/[\w/]+\.py)\)")
NAME = re.compile(r"`([\w.]+)`")
LINES_A_MINUTE = 60


def missing(page: str) -> list[str]:
    """What a stop names and the files of that stop do not define."""
    wrong = []
    for _, stop in STOP.findall(page):
        files = FILE.findall(stop)
        defined = {name for file in files for name in names_in(ROOT / file)}
        wanted = [name for name in NAME.findall(stop) if not name.endswith(".py")]
        wrong += [name for name in wanted if name not in defined]
    return wrong


def names_in(path: Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
            parts = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            found |= {name for part in parts for name in (part.name, f"{node.name}.{part.name}")}
    return found


def test_every_stop_leads_to_what_is_there() -> None:
    page = PAGE.read_text()
    assert len(STOP.findall(page)) == 12
    assert missing(page) == []


def test_a_name_that_is_gone_is_found() -> None:
    page = PAGE.read_text().replace("`RegisterCell.change`", "`RegisterCell.alter`")
    assert missing(page) == ["RegisterCell.alter"]


def test_the_way_takes_an_hour() -> None:
    page = PAGE.read_text()
    assert sum(int(minutes) for minutes, _ in STOP.findall(page)) == 60
    lines = sum(len((ROOT / file).read_text().splitlines()) for file in set(FILE.findall(page)))
    assert lines < 60 * LINES_A_MINUTE
    (told,) = re.findall(r"about ([\d,]+) lines", page)
    assert abs(int(told.replace(",", "")) - lines) < 0.1 * lines
