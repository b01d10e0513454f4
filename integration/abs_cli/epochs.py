"""``abs epochs`` and ``abs wait``: the last epochs of a job in all of its targets."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from abs_cli.output import FAILED, AsJson, errors, print_json, print_table, report
from abs_cli.sites import Job, Registers, Schema, Sinks, Url
from abs_core.errors import OptionError

if TYPE_CHECKING:
    from abs_core.model import JobState
    from abs_spark.epochs.record import At, Epoch


def epochs(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the last epochs of a job: when, how many rows, and how readers stop exactly there.

    Of each target it shows where readers stop: a version or snapshot of a table, the end of each
    partition of a topic, objects of a bucket; "now" where a system has no past. "input" is when the
    engine had asked the sources what the epoch reads. Times are in UTC, by the driver's clock.

    Exit code 1: an epoch is decided and not finished in all targets.
    """
    from abs_spark.epochs.record import epochs_of

    state = Registers.at(url, stateschema, sinks).of(job)
    records = epochs_of(state)
    undone = [decision.epoch for decision in state.open]
    if as_json:
        head = {"job": state.job, "register": state.register, "finished_up_to": state.frontier}
        shown = [record.document() for record in records]
        print_json({**head, "decided_and_open": undone, "epochs": shown})
    elif not records:
        errors.print(f"{escape(job)} has no epoch yet", soft_wrap=True)
    else:
        print_table(_table(state, records))
    for epoch in undone:
        errors.print(f"[red]decided but not finished[/] epoch {epoch}", soft_wrap=True)
    if undone:
        raise typer.Exit(FAILED)


def _table(state: JobState, records: list[Epoch]) -> Table:
    from abs_spark.epochs.record import iso

    table = Table("epoch", "input", "decided", "finished", "rows", "dead", box=None)
    names = list(dict.fromkeys(at.sink.name for entry in records for at in entry.targets))
    for name in names:
        table.add_column(escape(name or state.target))
    for epoch in records:
        course = epoch.course
        finished = iso(course.finished) or "?" if epoch.finished else "not yet"
        times = iso(course.input) or "?", iso(course.decided) or "?", finished
        at = {target.sink.name: _place(target, epoch.number) for target in epoch.targets}
        counts = "-" if epoch.rows is None else f"{epoch.rows:,}", f"{epoch.dead:,}"
        places = (escape(at.get(name, "-")) for name in names)
        table.add_row(str(epoch.number), *times, *counts, *places)
    return table


def _place(at: At, epoch: int) -> str:
    position = at.as_of()
    more = "" if at.of in (None, epoch) else ", no rows"
    return f"{position.text}{more}" if position.told else f"? {position.unreadable}"


def wait(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    epoch: Annotated[int | None, typer.Option(min=0, help="The epoch's number.")] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="The epoch that is decided last now.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The first epoch for which Spark asked its sources at this time or later: ISO 8601 "
            "with a zone, by the driver's clock (2026-11-28T16:00:00Z).",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="How long; 0: look once.")
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Wait until an epoch of a job is finished in all of its targets.

    It looks at the register only. What is written to a source in the moment in which Spark asks it may
    be left to the next epoch: with --after, take a time a few seconds after the last write that
    matters. A query with a limit for each batch, or with availableNow, may leave more to later epochs:
    wait for the end of its run, and then with --latest.

    Exit code 4: not yet. 5: the job is gone, or its epochs are counted anew. 3: the register does not
    answer.
    """
    from abs_spark.epochs.cut import wanted_of
    from abs_spark.epochs.waiting import wait_for

    if (epoch is not None) + latest + (after is not None) != 1:
        raise typer.BadParameter("give one of them.", param_hint="--epoch, --latest or --after")
    wanted = wanted_of(epoch, None if after is None else _moment(after))
    load = Registers.at(url, stateschema, sinks).register.load
    there = wait_for(lambda: load(job), job, wanted, timeout)
    text = f"epoch {there} of {escape(job)} is finished in all targets"
    report(text, as_json=as_json, job=job, epoch=there)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(
            f"This is no time: {text[:60]!r}.", remedy="write it as 2026-11-28T16:00:00Z."
        ) from error
