"""What commands share: results go to stdout, everything else to stderr; and how names are read.

Exit codes of the command ``abs``:

===  ==================================================================================
0    done, and what was asked about is well
1    the thing asked about is not clean or not up, or a rule or the target refused
2    the command line, the configuration or this machine's set-up is wrong
3    the target cannot be reached or is busy; the same command may succeed later
4    `abs wait`: not yet; the same command may succeed later
5    `abs wait`: the job is gone, or its epochs are counted anew
130  interrupted (Ctrl-C)
===  ==================================================================================
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from abs_core.errors import (
    AbsError,
    ConfigError,
    ContentionError,
    JobGoneError,
    NotYetError,
    OptionError,
    UnavailableError,
)
from abs_core.model import HandleName, JobState

FAILED = 1
USAGE = 2
UNAVAILABLE = 3
NOT_YET = 4
GONE = 5
INTERRUPTED = 130


def exit_code(error: AbsError) -> int:
    """The exit code for an error (table above)."""
    match error:
        case ConfigError():
            return USAGE
        case UnavailableError() | ContentionError():
            return UNAVAILABLE
        case NotYetError():
            return NOT_YET
        case JobGoneError():
            return GONE
        case _:
            return FAILED


Kind = TypeVar("Kind", bound=StrEnum)

people = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]


_WIDEST = 10_000
"""Columns; no table is wider than that."""


def show_error(error: AbsError) -> None:
    """Print an error's line to stderr."""
    errors.print(f"[bold red]error:[/] [red]{escape(str(error))}[/]", soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table to stdout without wrapping, so that a cell can be copied."""
    Console(width=_WIDEST).print(table, soft_wrap=True)


def print_json(value: Any, file: Path | None = None) -> None:
    """Print one JSON document to stdout, or a file, without colours and wrapping."""
    text = json.dumps(value, indent=2, default=str) + "\n"
    if file is None:
        sys.stdout.write(text)
    else:
        file.write_text(text)


def of_kind(*kinds: str) -> Callable[[Path | None], Path | None]:
    """A check of an option: the file's name ends in one of these."""

    def check(file: Path | None) -> Path | None:
        if file is not None and file.suffix not in kinds:
            raise typer.BadParameter(f"name a file that ends in {' or '.join(kinds)}.")
        return file

    return check


ReportTo = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        callback=of_kind(".json", ".html"),
        help="Also write the result to FILE.json, or as a page for a browser to FILE.html.",
    ),
]


def write_report(
    file: Path,
    page: Callable[[], str],
    document: Callable[[], Any],
    picture: Callable[[], str] | None = None,
) -> None:
    """Write a result as a page, as a picture or as JSON, as the file's name says."""
    drawn = {".html": page, ".svg": picture}.get(file.suffix)
    if drawn is not None:
        file.write_text(drawn(), "utf-8")
    else:
        print_json(document(), file)


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless ``yes``; without consent the command ends."""
    if not yes and not typer.confirm(question):
        raise typer.Exit(FAILED)


def report(text: str, *, as_json: bool, **document: Any) -> None:
    """Say what a command has done: a line for people, and one JSON document if programs ask for it."""
    errors.print(text, soft_wrap=True)
    if as_json:
        print_json(document)


def done(state: JobState) -> str:
    """What a job has committed, for people."""
    return "nothing" if state.frontier is None else f"everything up to epoch {state.frontier}"


def handle_of(text: str, listing: str) -> HandleName:
    """The handle of that name; raises ConfigError, with the command that lists handles."""
    name = HandleName.parse(text)
    if name is None:
        raise ConfigError(f"{text!r} is not the name of a handle.", remedy=f"see `{listing}`.")
    return name


def one_of(kind: type[Kind], option: str, text: str) -> Kind:
    """The member of that name; raises OptionError."""
    if text not in list(kind):
        names = ", ".join(kind)
        raise OptionError(f"There is no {option} {text!r}.", remedy=f"choose from {names}.")
    return kind(text)
