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
LINES_A_MINUTE = 20


def missing(page: str) -> list[str]:
    """What a stop names and the files of that stop do not define."""
    wrong = []
    for _, stop in STOP.findall(page):
        defined = {name for file in FILE.findall(stop) for name in lines_in(ROOT / file)}
        wrong += [name for name in names_of(stop) if name not in defined]
    return wrong


def names_of(stop: str) -> list[str]:
    return [name for name in NAME.findall(stop) if not name.endswith(".py")]


def lines_in(path: Path) -> dict[str, set[int]]:
    """The lines of each function and class, by its names."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = lines_of(node)
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    found |= dict.fromkeys((part.name, f"{node.name}.{part.name}"), lines_of(part))
    return found


def lines_of(node: ast.FunctionDef | ast.ClassDef) -> set[int]:
    assert node.end_lineno is not None
    return set(range(node.lineno, node.end_lineno + 1))


def to_read(stop: str) -> int:
    """Lines of what a stop names, or of its files if it names nothing in them."""
    names, read = names_of(stop), 0
    for file in FILE.findall(stop):
        lines = lines_in(ROOT / file)
        whole = len((ROOT / file).read_text().splitlines())
        wanted = [lines[name] for name in names if name in lines]
        read += len(set().union(*wanted)) if names else whole
    return read


def test_every_stop_leads_to_what_is_there() -> None:
    page = PAGE.read_text()
    assert len(STOP.findall(page)) == 12
    assert missing(page) == []


def test_a_name_that_is_gone_is_found() -> None:
    page = PAGE.read_text().replace("`RegisterCell.change`", "`RegisterCell.alter`")
    assert missing(page) == ["RegisterCell.alter"]


def test_the_way_takes_an_hour() -> None:
    page = PAGE.read_text()
    stops = STOP.findall(page)
    assert sum(int(minutes) for minutes, _ in stops) == 60
    lines = sum(to_read(stop) for _, stop in stops)
    assert lines < 60 * LINES_A_MINUTE
    (told,) = re.findall(r"about ([\d,]+) lines", page)
    assert abs(int(told.replace(",", "")) - lines) < 0.1 * lines


def test_a_stop_that_names_nothing_is_read_whole() -> None:
    part = "[`crash.py`](../../abs_core/crash.py): `CrashPoint`"
    assert 10 < to_read(part) < to_read(part.partition(":")[0])
