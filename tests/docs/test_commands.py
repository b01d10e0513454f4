"""Every command `abs ...` that the README or a page names is there, with each of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from abs_cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = get_command(app)

_INLINE = re.compile(r"`(abs [^`\n]+)`")
_BLOCK = re.compile(r"^(?: {4})?(?:\$ )?(abs [a-z].*)$", re.MULTILINE)
"""A line of an indented block, or of a fenced one."""


def commands(text: str) -> Iterator[str]:
    """Each command of the text, a continued one as one line."""
    joined = re.sub(r"\\\n\s*", " ", text)
    yield from _INLINE.findall(joined)
    yield from _BLOCK.findall(joined)


def problems(line: str) -> list[str]:
    """What of a command is not there; ``a|b`` stands for two commands."""
    try:
        words = shlex.split(re.split(r"\s{2,}", line)[0], comments=True)[1:]
    except ValueError:
        return []  # a sentence of a page that begins with the name
    reached: list[Any] = [COMMAND]
    while words and hasattr(reached[0], "commands") and words[0][0] not in "-.":
        names, group = words.pop(0).split("|"), reached[0]
        if missing := [name for name in names if name not in group.commands]:
            return [f"{group.name} has no command {name}" for name in missing]
        reached = [group.commands[name] for name in names]
    own = takewhile(lambda word: word != "--", words)  # behind it is the command of a job
    asked = [word.partition("=")[0].rstrip(",.") for word in own if word.startswith("--")]
    return [
        f"{command.name} has no option {option}"
        for command in reached
        for option in asked
        if option not in {"--help", *(o for each in command.params for o in each.opts)}
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_is_there(page: Path) -> None:
    assert [found for line in commands(page.read_text()) for found in problems(line)] == []


def test_commands_are_found_and_a_wrong_one_is_told() -> None:
    text = (
        "Run `abs register lst`.\n\n    abs register list|show --uri X \\\n      --url Y  what it is\n"
        "\n```\nabs up\n```\n"
    )
    assert [problems(line) for line in commands(text)] == [
        ["register has no command lst"],
        ["list has no option --uri", "show has no option --uri"],
        [],
    ]
    assert sum(len(list(commands(page.read_text()))) for page in PAGES) >= 40
