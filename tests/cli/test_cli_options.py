"""Options that every command of ``abs`` has, under one name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

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


ADDRESSES = {"--url", "--expected"}
"""Options whose value may name a PostgreSQL server; ``-o`` and ``--sinks`` take the sink's options."""


def without_schema(of: typer.Typer) -> list[str]:
    """The rule: where a server of PostgreSQL can be named, the schema of its registers can be, too."""
    every = commands(typer.main.get_command(of))
    return [
        name
        for name, one in every
        if ADDRESSES & set(options(one)) and "--stateschema" not in options(one)
    ]


def test_every_command_that_takes_an_address_takes_the_schema_of_registers() -> None:
    assert without_schema(app) == []


def test_a_command_that_takes_an_address_alone_is_found() -> None:
    planted = typer.Typer()
    planted.add_typer(app)
    planted.command("bare")(_takes_an_address)
    assert without_schema(planted) == ["abs bare"]


def _takes_an_address(url: Annotated[str, typer.Option()]) -> None:
    """A command as somebody may add it."""


def test_the_schema_of_registers_has_one_name_everywhere() -> None:
    every = commands(typer.main.get_command(app))
    told = {name: [text for text in options(one) if "state" in text] for name, one in every}
    assert {texts[0] for texts in told.values() if texts} == {"--stateschema"}
