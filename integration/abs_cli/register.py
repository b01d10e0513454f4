"""``abs register``: what is committed, job by job."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from abs_cli.attempts import give_up_attempts
from abs_cli.codes import FAILED
from abs_cli.output import AsJson, errors, people, print_json, print_table
from abs_cli.state import Job, Schema, State, Url
from abs_cli.trail import noted
from abs_core.model import JobState, job_key
from abs_core.protocol import adopt_token

app = typer.Typer(help="Registers: what is committed, job by job.", no_args_is_help=True)


@app.command("list")
def list_jobs(url: Url, stateschema: Schema = "abs", *, as_json: AsJson = False) -> None:
    """One line for each job."""
    states = [stored.state for stored in State.at(url, stateschema).jobs()]
    if as_json:
        print_json([_document(state) for state in states])
        return
    table = Table("job", "target", "generation", "finished up to", "open", box=None)
    for state in states:
        frontier = "nothing yet" if state.frontier is None else f"epoch {state.frontier}"
        generation, still_open = str(state.generation), str(len(state.open))
        table.add_row(escape(state.job), escape(state.target), generation, frontier, still_open)
    print_table(table)


@app.command()
def show(job: Job, url: Url, stateschema: Schema = "abs", *, as_json: AsJson = False) -> None:
    """All that the register of one job holds."""
    document = _document(State.at(url, stateschema).of(job))
    if as_json:
        print_json(document)
        return
    table = Table(show_header=False, box=None)
    for name, value in document.items():
        text = "\n".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
        table.add_row(f"[bold]{name}[/]", escape(text))
    people.print(table)


@app.command()
def retire(
    job: Job,
    url: Url,
    stateschema: Schema = "abs",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a job's register, for good. The job forgets what it has committed.

    If it is started again from its checkpoint it is refused, as one whose register was lost. To begin
    again from nothing there is `abs job reset`.
    """
    state = State.at(url, stateschema)
    kept = state.of(job)
    frontier = "nothing" if kept.frontier is None else f"everything up to epoch {kept.frontier}"
    if not yes and not typer.confirm(
        f"{job} has committed {frontier} to {kept.target}. Forget it?"
    ):
        raise typer.Exit(FAILED)
    state.register.retire(job)
    errors.print(f"[green]retired[/] {escape(job)}", highlight=False)


@app.command()
def rename(
    job: Job,
    new: Annotated[str, typer.Argument(help="The new name, as the sink's option job will say.")],
    url: Url,
    stateschema: Schema = "abs",
) -> None:
    """Give a job another name: what it has committed stays committed. Stop the job first.

    Raises the generation, so that a run that is alive is fenced; commits what is decided, and aborts
    the rest. Then start the query with the new name, on the same checkpoint. Should the command be cut
    off, run it again.
    """
    from abs_core.moving import rename as move

    state = State.at(url, stateschema)
    known = state.of(job)
    state.check_whole(known)
    with noted("rename", job, url, new=new):
        give_up_attempts(url, known)
        moved = move(state.register, state.committer, job, job_key(new))
    done = "nothing" if moved.frontier is None else f"everything up to epoch {moved.frontier}"
    errors.print(
        f"[green]renamed[/] {escape(job)} to {escape(moved.job)}, which has committed {done}",
        highlight=False,
        soft_wrap=True,
    )


def _document(state: JobState) -> dict[str, Any]:
    return {
        "job": state.job,
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
        "recent": [
            {"epoch": r.epoch, "rows": r.rows, "fingerprint": r.fingerprint} for r in state.recent
        ],
        "abandoned": list(state.abandoned),
        "checkpoint": state.checkpoint,
        "superseded_runs": len(state.superseded),
        "adopt": adopt_token(state),
    }
