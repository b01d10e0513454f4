"""``abs deadletters``: rows that a target refused and a job kept (option deadletter)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from abs_cli.codes import FAILED
from abs_cli.output import AsJson, confirm, errors, people, print_json, print_table
from abs_core.errors import ConfigError

if TYPE_CHECKING:
    from abs_sinks.deadletters import KeptLetters

app = typer.Typer(help="Rows that a target refused, kept aside by a job.", no_args_is_help=True)

Url = Annotated[
    str,
    typer.Option("--url", envvar="ABS_POSTGRES_URL", help="The database, as in the option url."),
]
Place = Annotated[str, typer.Option("--deadletter", help="As in the sink's option deadletter.")]
Ids = Annotated[list[int], typer.Argument(help="As `abs deadletters list` shows them.")]
Job = Annotated[str | None, typer.Option("--job", help="Only those of this job.")]
Code = Annotated[str | None, typer.Option("--code", help="Only those with this reason.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_SHOWN = ("id", "job", "sink", "epoch", "at", "code", "column", "key", "message")


@app.command("list")
def list_letters(
    url: Url,
    deadletter: Place,
    job: Job = None,
    code: Code = None,
    *,
    replayed: Annotated[bool, typer.Option(help="Also those that were replayed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters without their rows. Exit code 1 if there is any."""
    found = _kept(url, deadletter).found(job=job, code=code, replayed=replayed)
    if as_json:
        print_json(found)
    elif found:
        table = Table(*_SHOWN, box=None)
        for letter in found:
            table.add_row(*("" if letter[name] is None else str(letter[name]) for name in _SHOWN))
        print_table(table)
    else:
        people.print("no dead letters")
    if found:
        raise typer.Exit(FAILED)


@app.command()
def show(
    ids: Ids,
    url: Url,
    deadletter: Place,
    *,
    as_json: AsJson = False,
) -> None:
    """Print dead letters with their rows, as JSON in any case. The rows may be personal data."""
    found = _kept(url, deadletter).shown(ids)
    print_json(found)
    if missing := set(ids) - {letter["id"] for letter in found}:
        errors.print(f"not there: {', '.join(map(str, sorted(missing)))}")
        raise typer.Exit(FAILED)


@app.command()
def replay(
    ids: Ids,
    url: Url,
    deadletter: Place,
    dbtable: Annotated[str, typer.Option("--dbtable", help="The table that the rows go to.")],
    write: Annotated[str, typer.Option(help="append or upsert, as in the job.")] = "append",
    key: Annotated[str | None, typer.Option(help="As in the job, for upsert.")] = None,
    stateschema: Annotated[str, typer.Option("--stateschema")] = "abs",
    *,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Write the rows of dead letters to their table, exactly once, and mark them as replayed.

    All of them or none: a row that is refused again is an error. Correct the table first.
    """
    given = {"dbtable": dbtable, "write": write, "stateschema": stateschema}
    kept = _kept(url, deadletter, **given, **({"key": key} if key else {}))
    confirm(f"write {len(set(ids))} rows to {dbtable}?", yes=yes)
    rows = kept.replay(sorted(set(ids)))
    if as_json:
        print_json({"did": "replayed", "rows": rows})
    else:
        people.print(f"{rows} rows written and marked as replayed")


def _kept(url: str, deadletter: str, **more: Any) -> KeptLetters:
    from abs_sinks.door import format_at

    found = format_at(url)
    given = {"url": url, "deadletter": deadletter, "protocol": "wal", "dbtable": "unknown"}
    kept = found.dead_letters(found.parse(given | more))
    if kept is None:
        raise ConfigError(f"{found.name} keeps no dead letters.", remedy="name a PostgreSQL URL.")
    return kept
