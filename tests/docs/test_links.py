"""Every relative link of the README and the docs leads to a file, and to a heading of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "tests").rglob("*.md"),
    ]
)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
KINDS = ("how-to", "reference", "explanation")
HOW_TO_WORDS = 2750
"""Without code. A page that grows beyond is two pages: by what its reader is doing."""


def text_of(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The names of its headings, as GitHub makes them."""
    seen, found = Counter[str](), set[str]()
    for heading in HEADING.findall(text_of(page)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def broken(page: Path) -> list[str]:
    wrong = []
    for target in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue  # another site: not asked here
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        if not aim.exists() or (anchor and anchor not in anchors(aim)):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert not broken(page)


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c\n[1](#a-b-c) [2](#a) [3](page.md#a-b-c) [4](none.md) [5](http://x)\n"
    )
    assert broken(page) == ["#a", "none.md"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_readme_leads_to_every_page_of_each_kind(kind: str) -> None:
    assert "(docs/contents.md)" in text_of(ROOT / "README.md")
    contents = text_of(ROOT / "docs" / "contents.md")
    pages = [
        page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs" / kind).glob("*.md")
    ]
    assert pages
    assert [page for page in pages if f"({page}" not in contents] == []


def test_the_first_page_is_read_in_a_few_minutes() -> None:
    assert len(text_of(ROOT / "README.md").split()) <= 1000


def too_long(pages: Iterable[Path]) -> list[str]:
    return [page.name for page in pages if len(text_of(page).split()) > HOW_TO_WORDS]


def test_a_page_for_somebody_in_a_hurry_is_short() -> None:
    assert too_long((ROOT / "docs" / "how-to").glob("*.md")) == []


def test_planted_a_page_that_grew_too_long_is_found(tmp_path: Path) -> None:
    short, long = tmp_path / "short.md", tmp_path / "long.md"
    short.write_text("word " * HOW_TO_WORDS + "\n```\n" + "code " * 50 + "\n```\n")
    long.write_text("word " * (HOW_TO_WORDS + 1))
    assert too_long([short, long]) == ["long.md"]


_ROW = re.compile(r"^\|.*\|\s*$")
_RULE = re.compile(r"^\|(\s*:?-+:?\s*\|)+\s*$")


def torn_tables(text: str) -> list[str]:
    """Rows of tables that no reader shows as rows: each table begins with a heading and a rule.

    Args:
        text: of a page, without its code.
    """
    torn, block = [], list[str]()
    for line in [*text.splitlines(), ""]:
        if _ROW.match(line):
            block.append(line)
            continue
        if block:
            columns = [len(re.findall(r"(?<!\\\\)\|", row)) for row in block]
            if len(block) < 2 or not _RULE.match(block[1]):
                torn.append(block[0])
            torn += [row for row, n in zip(block, columns, strict=True) if n != columns[0]]
            if line.startswith("|"):
                torn.append(line)
        block = []
    return torn


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_table_is_torn(page: Path) -> None:
    assert torn_tables(text_of(page)) == []


_TABLE = "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n"


@pytest.mark.parametrize("row", [2, 3])
def test_a_table_that_a_blank_line_splits_is_found(row: int) -> None:
    assert torn_tables(_TABLE) == []
    rows = _TABLE.splitlines()
    assert torn_tables("\n".join([*rows[:row], "", *rows[row:]])) != []
    assert torn_tables("\n".join([*rows[:row], rows[row] + " 5 |", *rows[row + 1 :]])) != []
