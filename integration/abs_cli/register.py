"""``abs register``: commands on the jobs' registers."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from abs_cli import tokens
from abs_cli.moving import UNFINISHED
from abs_cli.output import (
    FAILED,
    AsJson,
    confirm,
    done,
    errors,
    people,
    print_json,
    print_table,
    report,
)
from abs_cli.repair import repair
from abs_cli.sites import Job, Registers, Schema, Sinks, Site, Url
from abs_cli.trail import noted
from abs_core.errors import ConfigError, ProtocolError
from abs_core.model import NOWHERE, JobState, job_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from abs_core.births.parent import BatchJob
    from abs_core.contracts import Inventory, Stored

app = typer.Typer(help="Registers: what each job has committed.", no_args_is_help=True)
app.command()(repair)


@app.command("list")
def list_jobs(
    url: Url = None, stateschema: Schema = "abs", sinks: Sinks = None, *, as_json: AsJson = False
) -> None:
    """List the jobs, one per line; for a batch job with the number of its tokens.

    "changed" is when the register last changed, in UTC by the system's clock: with each committed
    epoch, and with each start and end of a run.
    """
    from abs_core.births.parent import batch_jobs

    entries = Registers.at(url, stateschema, sinks).jobs()
    streams, batches = batch_jobs(stored.state for stored in entries)
    changed = {stored.state.job: _moment(stored) for stored in entries}
    if as_json:
        listed = [_document(state, changed[state.job]) for state in streams]
        print_json(listed + [tokens.document(b) for b in batches])
        return
    table = Table("job", "target", "generation", "finished up to", "open", "changed", box=None)
    for state in streams:
        frontier = "nothing yet" if state.frontier is None else f"epoch {state.frontier}"
        if state.moved_to is not None:
            frontier = f"moved to {state.moved_to}"
        generation, still_open = str(state.generation), str(len(state.open))
        named = escape(state.job), escape(state.target)
        table.add_row(*named, generation, frontier, still_open, changed[state.job])
    for batch in batches:
        count = len(batch.states)
        summary = f"{count} token{'' if count == 1 else 's'}"
        if batch.missing:
            summary += f", {len(batch.missing)} lost"
        targets = "\n".join(sorted({state.target for state in batch.states}))
        still_open = str(sum(len(state.open) for state in batch.states))
        last = max((changed[state.job] or "" for state in batch.states), default="")
        table.add_row(escape(batch.job), escape(targets), "", summary, still_open, last)
    print_table(table)


@app.command()
def show(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the register of one job, or of JOB@TOKEN; for a batch job its tokens."""
    state = Registers.at(url, stateschema, sinks)
    batch = tokens.find(state, job)
    if batch is None:
        stored = state.stored(job)
        document = _document(stored.state, _moment(stored))
    else:
        document = tokens.document(batch)
    if as_json:
        print_json(document)
        return
    table = Table(show_header=False, box=None)
    for name, value in document.items():
        shown = [_sink_line(sink) for sink in value] if name == "sinks" else value
        text = "\n".join(map(str, shown)) or "none" if isinstance(shown, list) else str(shown)
        table.add_row(f"[bold]{name}[/]", escape(text))
    people.print(table)


def _sink_line(sink: dict[str, Any]) -> str:
    until = "" if sink["until"] is None else f" to {sink['until']}"
    return f"{sink['number']} {sink['name']}: {sink['target']}, from epoch {sink['since']}{until}"


@app.command()
def retire(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    tokens_before: Annotated[
        str | None,
        typer.Option(
            help="For a batch job: only the tokens that were last written before this date (UTC)."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the register of a job, or of JOB@TOKEN: the record of what it has committed.

    If the job is started again with its checkpoint, it is refused, because its register is lost. To let
    it start from nothing, use `abs job reset`. A batch that is run again under a retired token is
    written again.
    """
    state = Registers.at(url, stateschema, sinks)
    batch = tokens.find(state, job)
    if tokens_before is not None:
        _retire_tokens(state, job, batch, tokens_before, yes=yes, as_json=as_json)
        return
    if batch is not None:
        raise ConfigError(
            f"{job} is a batch job: each of its {len(batch.states)} tokens has a register.",
            remedy=f"retire one token: `abs register retire {job}@TOKEN`; or the tokens of old "
            "batches: --tokens-before DATE.",
        )
    kept = state.of(job)
    _check_ended(state, [job])
    if left := state.in_doubt(job):
        named = escape(job)
        errors.print(
            f"{len(left)} pre-committed handles of {named} are open, {escape(str(left[0].handle))} for "
            f"one: without the register only `abs in-doubt abort {named} --orphan HANDLE` ends them. "
            f"`abs job remove {named}` ends them and deletes the register.",
            soft_wrap=True,
        )
    confirm(_what_is_forgotten(job, kept), yes=yes)
    state.check_same(kept)
    name, _, token = job.partition("@")
    if token:
        if refused := tokens.retire(state.register, name, [token]):
            raise refused[0][1]
    else:
        state.register.retire(job)
    report(f"[green]retired[/] {escape(job)}", as_json=as_json, did="retired", job=job)


def _what_is_forgotten(job: str, kept: JobState) -> str:
    """The question."""
    if kept.moved_to is None:
        return f"{job} has committed {done(kept)} to {kept.target}. Forget it?"
    if kept.moved_to == NOWHERE:
        return (
            f"The reset or removal of {job} did not finish: run it again, to its end. Or is it enough "
            f"to forget that it has committed {done(kept)} to {kept.target}?"
        )
    if (place := kept.moved_to.removesuffix(UNFINISHED)) != kept.moved_to:
        return (
            f"The move of the register of {job} to {place} did not finish: this may be the only record "
            f"that it has committed {done(kept)} to {kept.target}. Run the move again, to its end; or, "
            "if that place is lost for good: forget it?"
        )
    return (
        f"The register of {job} was moved to {kept.moved_to}. Without this note, a run that still "
        "names the old place may begin from nothing there. Delete the note?"
    )


def _check_ended(state: Registers, jobs: Sequence[str]) -> None:
    """Raise ProtocolError if one has a handle that hides data from readers and never ends by itself."""
    lasting = [d for d in state.in_doubt(None) if d.lasting and d.handle.job in jobs]
    for doubt in lasting[:1]:
        raise ProtocolError(
            f"{len(lasting)} transactions of the job are open, and no timeout ends them: readers wait. "
            f"The first is open for {doubt.age_seconds or 0:.0f} s.",
            job=doubt.handle.job,
            handle=str(doubt.handle),
            remedy=f"`abs job reset {doubt.handle.job}` commits what is decided, aborts the rest, and "
            "deletes the register.",
        )


def _retire_tokens(
    state: Registers, job: str, batch: BatchJob | None, date: str, *, yes: bool, as_json: bool
) -> None:
    moment = tokens.moment_of(date)
    if batch is None:
        raise ConfigError(
            f"There is no batch job {job!r} here.", remedy="see `abs register list` for its name."
        )
    named, reasons = tokens.plan(batch, moment)
    kept = list(reasons)
    for token, why in reasons.items():
        errors.print(f"[yellow]kept[/] {escape(token)}: {escape(why)}")
    if not named:
        text = f"{escape(job)} has no token to retire."
        report(text, as_json=as_json, did="retired", job=job, tokens=[], kept=kept)
        return
    shown = named[0] if len(named) == 1 else f"{named[0]} to {named[-1]}"
    question = (
        f"{len(named)} token(s) of {job} were last written before {moment:%Y-%m-%d %H:%M} UTC "
        f"({shown}). Forget them? A batch that is run again under one of them is written again"
    )
    confirm(question, yes=yes)
    _check_ended(state, [f"{job}@{token}" for token in named])
    refused = tokens.retire(state.register, job, named)
    for token, error in refused:
        errors.print(f"[yellow]kept[/] {escape(token)}: {escape(str(error))}")
    kept += [token for token, _ in refused]
    gone = [token for token in named if token not in kept]
    text = f"[green]retired[/] {len(gone)} token(s) of {escape(job)}"
    report(text, as_json=as_json, did="retired", job=job, tokens=gone, kept=kept)
    if refused:
        raise typer.Exit(FAILED)


@app.command()
def rename(
    job: Job,
    new: Annotated[str, typer.Argument(help="The new name, as in the sink's option job.")],
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Give a job another name and keep what it has committed. Stop the job first.

    Raises the generation, so a live run is fenced; commits the decided handles and aborts the others.
    Then start the query with the new name, on the same checkpoint. If the command is interrupted, run
    it again.
    """
    from abs_cli.moving import rename as move

    state = Registers.at(url, stateschema, sinks)
    job_state = state.of(job)
    state.check_whole(job_state)
    with noted("rename", job, state.url, new=new):
        state.give_up(job_state)
        moved = move(state.register, state.committer(job_state), job, job_key(new))
    text = (
        f"[green]renamed[/] {escape(job)} to {escape(moved.job)}, which has committed {done(moved)}"
    )
    shown = {"to": moved.job, "frontier": moved.frontier}
    report(text, as_json=as_json, did="renamed", job=job, **shown)


@app.command()
def move(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    to: Annotated[
        str | None, typer.Option("--to", help="The new place: a URL as for --url.")
    ] = None,
    to_sink: Annotated[
        str | None, typer.Option("--to-sink", help="The new place: a sink that --sinks names.")
    ] = None,
    to_stateschema: Annotated[
        str, typer.Option("--to-stateschema", help="PostgreSQL: the schema in the new place.")
    ] = "abs",
    as_json: AsJson = False,
) -> None:
    """Move the register of a job to another place and keep what it has committed. Stop the job first.

    Raises the generation, so a live run is fenced; commits the decided handles in every target and
    aborts the others. All systems must answer; for a job with several, name them with --sinks. The old
    place then says where the register is now, and no query can start with it. If the command is
    interrupted, run it again.
    """
    from abs_cli.moving import move as move_state

    state = Registers.at(url, stateschema, sinks)
    job_state = state.of(job)
    if job_state.moved_to is None:
        state.check_whole(job_state)
    other = _other_place(state, job_state, to, to_sink, to_stateschema)
    with noted("move", job, state.url, to=other.place(job)):
        state.give_up(job_state)
        moved = move_state(state.register, state.committer(job_state), job, other)
    place = other.place(job)
    text = f"[green]moved[/] {escape(job)} to {escape(place)}; it has committed {done(moved)}"
    report(text, as_json=as_json, did="moved", job=job, to=place, frontier=moved.frontier)


def _other_place(
    state: Registers, job: JobState, to: str | None, sink: str | None, schema: str
) -> Inventory:
    from abs_core.ownwrite import TARGET
    from abs_sinks.register_at import folder_of

    if (to is None) == (sink is None):
        raise typer.BadParameter("give exactly one of them.", param_hint="--to or --to-sink")
    if to is not None:
        if folder_of(to) is not None and job.target != TARGET:
            raise ConfigError(
                f"{to} is a folder, where only a job of abs_spark.once can have its register.",
                job=job.job,
                remedy="name a database, kafka://... or s3://...",
            )
        return Site.at(to, schema).register
    if sink is None or sink not in state.sinks:
        raise ConfigError(
            f"The file names no sink {sink!r}.", remedy=f"use {', '.join(state.sinks) or '--to'}."
        )
    return state.sinks[sink].register


def _moment(stored: Stored) -> str | None:
    """When the register was last changed, in UTC."""
    if stored.changed is None:
        return None
    return datetime.fromtimestamp(stored.changed, UTC).isoformat(timespec="seconds")


def _document(state: JobState, changed: str | None) -> dict[str, Any]:
    return {
        "job": state.job,
        "changed": changed,
        "register": state.register,
        "target": state.target,
        "lineage": state.lineage,
        "generation": state.generation,
        "run": state.run,
        "frontier": state.frontier,
        "open": [
            {"epoch": d.epoch, "generation": d.generation, "handles": sorted(map(str, d.handles))}
            for d in state.open
        ],
        "recent": [dataclasses.asdict(recent) for recent in state.recent],
        "abandoned": list(state.abandoned),
        "checkpoint": state.checkpoint,
        "sinks": [dataclasses.asdict(sink) for sink in state.sinks],
        "moved_to": state.moved_to,
        "superseded_runs": len(state.superseded),
    }
