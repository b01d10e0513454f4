"""The command ``abs``.

Each sub-command is a module of its own and is listed in :data:`app` below. It offers ``--json`` for
programs, prints results to stdout and everything else to stderr. It ends by returning (exit code
0), by ``raise typer.Exit(FAILED)``, or by an :class:`abs_core.errors.AbsError`, which is printed as
one red line on stderr. Exit codes: :mod:`abs_cli.output`.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from abs_cli import (
    audit,
    chaos,
    deadletters,
    demo,
    doctor,
    explain_error,
    in_doubt,
    job,
    print_release,
    register,
    services,
    trace,
    wal,
    watch,
)
from abs_cli.output import INTERRUPTED, exit_code, show_error
from abs_core.errors import AbsError

app = typer.Typer(
    name="abs",
    help="Exactly-once sinks for PySpark: services, checks and audits.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(services.up)
app.command("down")(services.down)
app.command("status")(services.status)
app.command("chaos")(chaos.chaos)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.command("explain-error")(explain_error.explain_error)
app.command("trace")(trace.trace)
app.command("watch")(watch.watch)
app.add_typer(audit.app, name="audit")
app.add_typer(register.app, name="register")
app.add_typer(job.app, name="job")
app.add_typer(in_doubt.app, name="in-doubt")
app.add_typer(wal.app, name="wal")
app.add_typer(deadletters.app, name="deadletters")


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the release and exit.")
    ] = False,
) -> None:
    """The command itself; ``abs_cli.entry`` has answered ``--version`` alone, without this module."""
    if version:
        print_release()
        raise typer.Exit


def main() -> None:
    """Run the command and end the process."""
    try:
        app()
    except AbsError as error:
        show_error(error)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
