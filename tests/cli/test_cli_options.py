"""Options that every command of ``abs`` has, under one name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from abs_cli.main import app


def commands(group: Any, name: str = "abs") -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its whole name."""
    for part, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{name} {part}")
    if not hasattr(group, "commands") or (group.invoke_without_command and group.params):
        yield name, group


def without_json(of: typer.Typer) -> list[str]:
    """The rule: every command prints one JSON document on demand."""
    every = commands(typer.main.get_command(of))
    return [name for name, one in every if "--json" not in options(one)]


def options(command: Any) -> list[str]:
    return [text for parameter in command.params for text in parameter.opts]


def test_every_command_has_json() -> None:
    assert without_json(app) == []


def test_a_command_without_json_is_found() -> None:
    planted = typer.Typer()
    planted.add_typer(app)
    planted.command("bare")(lambda: None)
    assert without_json(planted) == ["abs bare"]


def test_the_schema_of_registers_has_one_name_everywhere() -> None:
    named = {
        name: [text for text in options(one) if "state" in text]
        for name, one in commands(typer.main.get_command(app))
    }
    told = {name: texts[0] for name, texts in named.items() if texts}
    assert told["abs audit"] == "--stateschema"
    assert set(told.values()) == {"--stateschema"}
