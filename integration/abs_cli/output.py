"""Where output goes: results for people or programs to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

people = Console()
errors = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]


def print_json(value: Any) -> None:
    """One JSON document on stdout, not coloured and not wrapped."""
    json.dump(value, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")
