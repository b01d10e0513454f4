"""``abs demo``: a streaming job over real data, killed again and again, then audited."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from abs_cli.output import FAILED, AsJson, errors, one_of, people, print_json

if TYPE_CHECKING:
    from abs_demo.hops import Places
    from abs_demo.settings import Result

Routes = Annotated[
    str,
    typer.Option(
        help="direct: files to PostgreSQL. chain: files to Kafka, from there to PostgreSQL and S3. "
        "epoch: files to all three under one decision. lake: files to PostgreSQL, Kafka, an Iceberg "
        "and a Delta table under one decision."
    ),
]
Keep = Annotated[
    bool,
    typer.Option(
        "--keep",
        help="Keep database, files and log, and print how to inspect them (with the password).",
    ),
]


def demo(
    *,
    protocol: Annotated[
        str, typer.Option(help="The protocol of the sink: 2pc, wal or idempotent.")
    ] = "2pc",
    kills: Annotated[int, typer.Option(help="How often the job is killed.")] = 5,
    seed: Annotated[
        int | None, typer.Option(help="Chooses the moments of the kills; default: random.")
    ] = None,
    days: Annotated[int, typer.Option(help="How many days of 2013 are written.")] = 365,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Use a plain at-least-once writer; the audit then fails."),
    ] = False,
    route: Routes = "direct",
    engine: Annotated[
        str, typer.Option(help="spark, or embedded (the runtime of this package, in one process).")
    ] = "spark",
    keep: Keep = False,
    as_json: AsJson = False,
) -> None:
    """Stream 336,776 flights, kill the job with SIGKILL again and again, and audit the targets.

    Exit code 0 only if every row is in each target exactly once, and nothing is left behind.
    """
    from abs_demo.engine import Engine
    from abs_demo.hops import Route
    from abs_demo.job import UNSAFE
    from abs_demo.run import lasting_places, run, temporary_places
    from abs_demo.settings import DemoSettings

    began = time.monotonic()
    settings = DemoSettings(
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        protocol=UNSAFE if unsafe else protocol,
        kills=kills,
        days=days,
        route=one_of(Route, "route", route),
        engine=one_of(Engine, "engine", engine),
    )
    console = errors if as_json else people
    fetches = "" if settings.route is Route.DIRECT else " (the first time fetches Kafka, 43 MB)"
    console.print(f"seed {settings.seed}; preparing the flights and starting servers{fetches} ...")
    if keep:
        places = lasting_places(settings)
        try:
            result = run(settings, console, places)
            _show(result, time.monotonic() - began, as_json=as_json)
        finally:
            _show_places(console, places)
    else:
        with temporary_places(settings) as temporary:
            result = run(settings, console, temporary)
        _show(result, time.monotonic() - began, as_json=as_json)
    if not result.clean:
        raise typer.Exit(FAILED)


def _show(result: Result, seconds: float, *, as_json: bool) -> None:
    from abs_audit.render import show, show_epochs
    from abs_demo.job import UNSAFE

    if as_json:
        print_json({**result.to_dict(), "seconds": round(seconds, 3)})
        return
    for report in (result.outcome.report, *result.others.values()):
        show(report, people)
    if result.epochs:
        show_epochs(result.epochs, people)
    figures = (
        f"{result.settings.epochs} epochs, {len(result.outcome.kills)} x SIGKILL, "
        f"{result.outcome.job_seconds:.0f} s; {seconds:.0f} s in total"
    )
    if result.clean:
        people.print(
            f"[bold green]Every row exactly once, and nothing left behind.[/] {figures}",
            soft_wrap=True,
        )
        return
    people.print(f"[bold red]Failed:[/] {escape('; '.join(result.shortcomings))}.", soft_wrap=True)
    again = f"{figures}. To repeat the same kills: abs demo --seed {result.settings.seed}"
    people.print(again, soft_wrap=True)
    if result.settings.protocol == UNSAFE:
        people.print("This was the plain writer. Without --unsafe, the same kills do no harm.")


def _show_places(console: Console, places: Places) -> None:
    audit = (
        f"abs audit --expected {places.folder / 'input'} --actual '{places.url}' --table flights "
        "--key year,month,day,carrier,flight,origin"
    )
    lines = {
        "files and log": str(places.folder),
        "inspect it": f"psql '{places.url}'",
        "audit it again": audit,
        "end it": f"abs down postgres --delete-data; rm -r {places.folder}",
    }
    for label, line in lines.items():
        # Not wrapped and not coloured: the lines are there to be copied.
        console.print(f"{label + ':':16}{line}", soft_wrap=True, markup=False)
