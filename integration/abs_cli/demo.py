"""``abs demo``: a streaming job over real data, killed again and again, then audited."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from abs_cli.codes import FAILED
from abs_cli.output import AsJson, errors, people, print_json

if TYPE_CHECKING:
    from abs_demo.run import Place
    from abs_demo.settings import Result

_KILLS = 5
_DAYS = 365


def demo(
    *,
    protocol: Annotated[str, typer.Option(help="Of the sink: 2pc, wal or idempotent.")] = "2pc",
    kills: Annotated[int, typer.Option(help="How often the job is killed.")] = _KILLS,
    seed: Annotated[int | None, typer.Option(help="Draws the moments; default: random.")] = None,
    days: Annotated[int, typer.Option(help="How many days of 2013 are written.")] = _DAYS,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Use a plain writer instead, and see the audit fail.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave database and files, and say how to look at them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stream 336,776 flights through Spark into PostgreSQL, kill it with SIGKILL, audit the table.

    Exit code 1 unless every row is in the table exactly once, and nothing is left behind.
    """
    from abs_demo.display import display_on
    from abs_demo.job import UNSAFE
    from abs_demo.run import lasting_place, run, temporary_place
    from abs_demo.settings import DemoSettings

    began = time.monotonic()
    settings = DemoSettings(
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        protocol=UNSAFE if unsafe else protocol,
        kills=kills,
        days=days,
    )
    console = errors if as_json else people
    if keep:
        place = lasting_place()
        try:
            result = run(settings, display_on(console), place)
        finally:
            _show_place(console, place)
    else:
        with temporary_place() as temporary:
            result = run(settings, display_on(console), temporary)
    if as_json:
        print_json({**result.to_dict(), "seconds": round(time.monotonic() - began, 3)})
    else:
        _show(result, time.monotonic() - began)
    if not result.clean:
        raise typer.Exit(FAILED)


def _show(result: Result, seconds: float) -> None:
    from abs_audit.render import show

    show(result.report, people)
    figures = (
        f"{result.settings.epochs} epochs, {len(result.kills)} x SIGKILL, "
        f"{result.job_seconds:.0f} s; all in all {seconds:.0f} s"
    )
    if result.clean:
        people.print(f"[bold green]Every row exactly once.[/] {figures}", highlight=False)
        return
    people.print(f"[bold red]Not shown:[/] {escape('; '.join(result.shortcomings))}.")
    people.print(
        f"{figures}. The same kills again: abs demo --seed {result.settings.seed}", highlight=False
    )


def _show_place(console: Console, place: Place) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_row("files and logs", str(place.folder))
    table.add_row("look at it", f"psql '{place.url}'")
    table.add_row(
        "audit it again",
        f"abs audit --expected {place.folder / 'input'} --actual '{place.url}' --table flights "
        "--key year,month,day,carrier,flight,origin",
    )
    table.add_row("end it", f"abs down postgres --delete-data; rm -r {place.folder}")
    console.print(table, soft_wrap=True, highlight=False, markup=False)
