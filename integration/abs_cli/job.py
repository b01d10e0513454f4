"""``abs job``: commands on a whole job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer
from rich.markup import escape

from abs_cli import tokens
from abs_cli.output import AsJson, confirm, done, errors, report
from abs_cli.sites import Job, Registers, Schema, Sinks, Url
from abs_cli.trail import noted
from abs_core.model import JobState

app = typer.Typer(help="Let a job start from nothing, or remove it.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command()
def reset(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            help="The query's checkpointLocation, if you keep it: the birth certificate in it is "
            "deleted. Not needed if you delete the whole checkpoint.",
        ),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a job start from nothing. Stop the job first, and clean its target.

    Commits the decided handles, aborts the others, and deletes the register. Rows in the target stay:
    the query writes its rows in addition to them. For write=changes it deletes the positions of rows
    that are gone, so that the changes are applied again.
    """
    from abs_cli.moving import reset as begin_again

    state = Registers.at(url, stateschema, sinks)
    job_state = state.of(job)
    state.check_whole(job_state)
    asked = (
        f"{job} has committed {done(job_state)} to {job_state.target}. Forget it, and start from "
        "nothing?"
    )
    _tell_what_stays([job_state])
    confirm(asked, yes=yes)
    state.check_same(job_state)
    with noted("reset", job, state.url):
        state.give_up(job_state)
        committer = state.committer(job_state, leave=True)

        def forget(last: JobState) -> None:
            _forget_rows(state, last)
            # Before the register: of an interrupted command nothing else would do it again.
            if checkpoint is not None:
                _forget(checkpoint, last)

        last = begin_again(state.register, committer, job, forget)
    text = f"[green]reset[/] {escape(job)}, which had committed {done(last)}"
    report(text, as_json=as_json, did="reset", job=job, frontier=last.frontier)


@app.command()
def remove(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    dead_letters: Annotated[
        bool,
        typer.Option(
            "--dead-letters",
            help="Also delete the job's dead letters (PostgreSQL). Without it they are named and kept.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove a job that will never be started again, with all that it left beside its rows.

    Fences its last run, commits the decided handles, aborts the others, and deletes register, markers
    and positions, also of its batch writes (tokens). Rows in the target stay. It names what it cannot
    delete. If the job is started again with its checkpoint, it is refused.
    """
    from abs_cli.moving import reset as end
    from abs_core.births.parent import parent_key

    state = Registers.at(url, stateschema, sinks)
    batch = tokens.beside(state, job)
    stored = state.register.load(job)
    registers = [*([] if stored is None else [stored.state]), *(batch.states if batch else ())]
    if not registers and batch is None:
        raise state.unknown(job)
    for register in registers:
        state.check_whole(register)
    gone = f", and delete {'its dead letters' if dead_letters else 'no dead letters'}"
    asked = f"{job} with {len(batch.states)} tokens" if batch else job
    rows = f" has committed {done(registers[0])} to {registers[0].target}" if registers else ""
    _tell_what_stays(registers)
    confirm(f"{asked}{rows}. Remove it{gone}?", yes=yes)
    for register in registers:
        state.check_same(register)
    printed: set[str] = set()
    frontier: int | None = None
    with noted("remove", job, state.url):
        for register in registers:
            state.give_up(register)
            forget = partial(_forget_rows, state, letters=dead_letters, printed=printed)
            committer = state.committer(register, leave=True)
            last = end(state.register, committer, register.job, forget)
            if stored is not None and last.job == stored.state.job:
                frontier = last.frontier
        if batch is not None and batch.parent is not None:
            _forget_rows(state, batch.parent, dead_letters, printed)
            state.register.retire(parent_key(job))
    if stored is not None and stored.state.checkpoint is not None:
        place = stored.state.checkpoint
        errors.print(escape(f"kept the checkpoint {place}: delete it, too"), soft_wrap=True)
    if not state.register.jobs():
        place = state.register.place(job)
        errors.print(escape(f"no other job has its register there: {place}"), soft_wrap=True)
    text = f"[green]removed[/] {escape(job)}"
    report(text, as_json=as_json, did="removed", job=job, frontier=frontier)


def _tell_what_stays(states: Sequence[JobState]) -> None:
    from abs_core.ownwrite import left_to_the_user

    for line in left_to_the_user(states):
        errors.print(escape(line), soft_wrap=True)


def _forget_rows(
    state: Registers,
    job_state: JobState,
    letters: bool | None = None,
    printed: set[str] | None = None,
) -> None:
    lines = [line for line in state.forget(job_state, letters) if line not in (printed or ())]
    for line in lines:
        errors.print(escape(line), soft_wrap=True)
    if printed is not None:
        printed.update(lines)


def _forget(checkpoint: str, job_state: JobState) -> None:
    from abs_spark.checkpoint.certificates import forget
    from abs_spark.checkpoint.failures import FailedBatch

    FailedBatch(checkpoint, job_state.job).forget()
    if not forget(checkpoint, job_state.job, job_state.register):
        errors.print(
            f"{escape(checkpoint)} has no birth certificate of {escape(job_state.job)}",
            soft_wrap=True,
        )
