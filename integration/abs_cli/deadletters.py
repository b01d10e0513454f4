"""``abs deadletters``: rows that a target refused and a job kept (option deadletter)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from abs_cli.output import FAILED, AsJson, confirm, errors, people, print_json, print_table
from abs_cli.sites import SCHEMA
from abs_core.errors import ConfigError

if TYPE_CHECKING:
    from abs_sinks.deadletters.place import KeptLetters

app = typer.Typer(help="Rows that a target refused, kept aside by a job.", no_args_is_help=True)

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ABS_POSTGRES_URL",
        help="The sink's system: a database as in the option url; kafka://HOST:PORT/REGISTERTOPIC; or "
        "s3://BUCKET/PATH, other options as its query.",
    ),
]
Deadletter = Annotated[
    str, typer.Option("--deadletter", help="As in the sink's option deadletter.")
]
Ids = Annotated[list[str], typer.Argument(help="As `abs deadletters list` shows them.")]
Job = Annotated[str | None, typer.Option("--job", help="Only those of this job.")]
Code = Annotated[str | None, typer.Option("--code", help="Only those with this reason.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Schema = Annotated[str | None, SCHEMA]
_AS_IN_JOB = typer.Option(help="As in the job.")
_SHOWN = ("id", "job", "sink", "epoch", "at", "code", "column", "key", "message")


@app.command("list")
def list_letters(
    url: Url,
    deadletter: Deadletter,
    job: Job = None,
    code: Code = None,
    stateschema: Schema = None,
    *,
    replayed: Annotated[bool, typer.Option(help="Also those that were replayed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters without their rows. Exit code 1 if there is any."""
    kept = _kept(url, deadletter, stateschema=stateschema)
    letters = kept.found(job=job, code=code, replayed=replayed)
    if as_json:
        print_json(letters)
    elif letters:
        table = Table(*_SHOWN, box=None)
        for letter in letters:
            shown = ("" if letter[name] is None else str(letter[name]) for name in _SHOWN)
            table.add_row(*map(escape, shown))
        print_table(table)
    else:
        people.print("no dead letters")
    if letters:
        raise typer.Exit(FAILED)


@app.command()
def show(
    ids: Ids,
    url: Url,
    deadletter: Deadletter,
    stateschema: Schema = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Print dead letters with their rows, as JSON in any case. The rows may be personal data."""
    letters = _kept(url, deadletter, stateschema=stateschema).shown(ids)
    print_json(letters)
    if missing := set(ids) - {str(letter["id"]) for letter in letters}:
        errors.print(f"not there: {', '.join(sorted(missing))}")
        raise typer.Exit(FAILED)


@app.command()
def replay(
    ids: Ids,
    url: Url,
    deadletter: Deadletter,
    dbtable: Annotated[
        str | None,
        typer.Option("--dbtable", "--topic", help="The table or topic that the rows go to."),
    ] = None,
    write: Annotated[
        str | None,
        typer.Option(
            help="append, upsert or changes, as in the job. Letters that are changes tell it "
            "themselves, with the options below."
        ),
    ] = None,
    key: Annotated[str | None, _AS_IN_JOB] = None,
    sequenceby: Annotated[str | None, _AS_IN_JOB] = None,
    applyasdeletes: Annotated[str | None, _AS_IN_JOB] = None,
    exceptcolumns: Annotated[str | None, _AS_IN_JOB] = None,
    positions: Annotated[str | None, _AS_IN_JOB] = None,
    unchanged: Annotated[str | None, _AS_IN_JOB] = None,
    stateschema: Schema = None,
    *,
    refused_by: Annotated[
        str | None,
        typer.Option(
            help="What the letters say that they were refused by (sink), if their rows go to another "
            "target: a table that has another name by now."
        ),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Write the rows of dead letters to their target, exactly once, and mark them as replayed.

    All of them or none: a row that is refused again is an error. Correct the target first. Rows of
    other columns are written apart; what cannot be read is named, and stays. Changes are applied by
    their positions: one that is older than its row changes nothing.
    """
    kept = _kept(
        url,
        deadletter,
        dbtable,
        write=write,
        key=key,
        sequenceby=sequenceby,
        applyasdeletes=applyasdeletes,
        exceptcolumns=exceptcolumns,
        positions=positions,
        unchanged=unchanged,
        stateschema=stateschema,
    )
    confirm(f"write {len(set(ids))} rows to {dbtable or 'their target'}?", yes=yes)
    rows = kept.replay(sorted(set(ids)), refused_by)
    if as_json:
        print_json({"did": "replayed", "rows": rows})
    else:
        people.print(f"{rows} dead letters replayed")


def _kept(url: str, deadletter: str, table: str | None = None, **more: str | None) -> KeptLetters:
    from abs_sinks.door import format_at

    format_ = format_at(url)
    options = {name: value for name, value in more.items() if value is not None}
    places = format_.letters()
    if places is None:
        raise ConfigError(
            f"{format_.name} keeps no dead letters.",
            remedy="name the system that the option deadletter of a sink is about.",
        )
    return places.at(url, deadletter, table, options)
