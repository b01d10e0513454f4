"""The command ``abs``.

Each sub-command is a module of its own. Those of this distribution are listed in :data:`app` below,
others bring theirs by an entry point of the group ``abs_cli.commands``. A command offers ``--json`` for
programs, prints results to stdout and everything else to stderr. It ends by returning (exit code
0), by ``raise typer.Exit(FAILED)``, or by an :class:`abs_core.errors.AbsError`, which is printed as
one red line on stderr. Exit codes: :mod:`abs_cli.output`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, NoReturn

import typer

from abs_cli import (
    audit,
    deadletters,
    doctor,
    epochs,
    explain_error,
    in_doubt,
    job,
    register,
    wal,
    watch,
)
from abs_cli.output import INTERRUPTED, exit_code, show_error
from abs_clients.extras import DISTRIBUTION
from abs_core.errors import AbsError, ConfigError
from abs_core.release import RELEASE

COMMANDS = "abs_cli.commands"
"""The group of entry points by which other distributions bring their commands."""

ELSEWHERE = {
    "up": "testing",
    "down": "testing",
    "status": "testing",
    "chaos": "testing",
    "demo": "demo",
    "trace": "embedded",
}
"""Commands that other distributions of this project bring, and the extra that installs each."""

app = typer.Typer(
    name="abs",
    help="Exactly-once sinks for PySpark: services, checks and audits.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("doctor")(doctor.doctor)
app.command("epochs")(epochs.epochs)
app.command("explain-error")(explain_error.explain_error)
app.command("wait")(epochs.wait)
app.command("watch")(watch.watch)
app.add_typer(audit.app, name="audit")
app.add_typer(register.app, name="register")
app.add_typer(job.app, name="job")
app.add_typer(in_doubt.app, name="in-doubt")
app.add_typer(wal.app, name="wal")
app.add_typer(deadletters.app, name="deadletters")


def _print_release(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"{DISTRIBUTION} {RELEASE}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,  # or the command that is missing would be an error
            callback=_print_release,
            help="Print the release and exit.",
        ),
    ] = False,
) -> None:
    """The command itself."""


def _loaded(entry: EntryPoint) -> Callable[..., None]:
    """The function of a command of another distribution; one that cannot be loaded hides no other."""
    try:
        command: Callable[..., None] = entry.load()
    except Exception as error:  # noqa: BLE001 - whatever the import of a foreign module raises
        return _failing(
            f"The command `abs {entry.name}` ({entry.value}) cannot be loaded: {error}.",
            "install its distribution again, in the release of abs-sinks.",
        )
    return command


def _failing(message: str, remedy: str) -> Callable[..., None]:
    def fail() -> NoReturn:
        """Cannot be run here: its distribution is not installed, or broken."""
        raise ConfigError(message, remedy=remedy)

    return fail


def _add_commands_of_others() -> None:
    brought = {entry.name: entry for entry in entry_points(group=COMMANDS)}
    for name, entry in brought.items():
        app.command(name)(_loaded(entry))
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    for name, extra in ELSEWHERE.items():
        if name not in brought:
            install = f"pip install '{DISTRIBUTION}[{extra}]'."
            absent = _failing(f"The command `abs {name}` is not installed.", install)
            app.command(name, hidden=True, context_settings=anything)(absent)


_add_commands_of_others()


def main() -> None:
    """Run the command and end the process."""
    try:
        app()
    except AbsError as error:
        show_error(error)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
