"""``abs in-doubt``: handles that are pre-committed, and neither committed nor aborted yet.

A running job resolves them by itself; these commands are for a job that will not start again. They
commit only what a decision names, and abort only what no decision can name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from abs_cli.lost import Lost, lost_handles
from abs_cli.moving import fenced, raised
from abs_cli.output import (
    FAILED,
    AsJson,
    confirm,
    done,
    errors,
    handle_of,
    people,
    print_json,
    print_table,
    report,
)
from abs_cli.sites import Job, Registers, Schema, Sinks, Url
from abs_cli.trail import noted
from abs_core import protocol
from abs_core.coordinator.rollforward import told
from abs_core.errors import ConfigError
from abs_core.events import Event, RolledForward
from abs_core.model import NO_EPOCH, HandleName, InDoubt, JobState, Outcome

_LEFT = (
    "decided handles, and handles that the job's last run could still decide if it is alive. Start the "
    "job again to end them; or, if that run is dead, add --fence"
)

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--attempts",
        metavar="TOPIC",
        help="Kafka, protocol=idempotent: also list what was sent to this topic and is not "
        "decided. This reads all records of the topic. May be given several times.",
    ),
]

app = typer.Typer(
    help="Handles in doubt: prepared, not committed or aborted.", no_args_is_help=True
)


@app.command("list")
def list_handles(
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    attempts: Topics = None,
    as_json: AsJson = False,
) -> None:
    """List every handle in doubt, with its age and its fate. Exit code 1 if there is any.

    Decided handles that no longer exist, or that their target does not list, are listed, too. Standard
    error then says where the rest of their epoch is, and what to do.

    Without --attempts, the list has no records that protocol=idempotent has sent to Kafka and not
    decided; standard error names the topics that may have some.
    """
    state = Registers.at(url, stateschema, sinks)
    states = {stored.state.job: stored.state for stored in state.jobs()}
    doubts = state.in_doubt(None)
    fates = [(doubt, protocol.fate(states.get(doubt.handle.job), doubt.handle)) for doubt in doubts]
    for topic in attempts or ():
        from abs_cli.kafka_attempts import fate_of_attempt, undecided_attempts

        with errors.status(f"reading topic {escape(topic)} ..."):
            sent = undecided_attempts(_cluster(url), topic)
        fates += [
            (doubt, fate_of_attempt(states.get(doubt.handle.job), doubt.handle)) for doubt in sent
        ]
    gone = _gone(state, list(states.values()), {doubt.handle for doubt in doubts})
    # Handles that this command cannot act on may be prepared, too: they are reported once.
    handles = {lost.doubt.handle for lost in gone}
    fates = [one for one in fates if one[0].handle not in handles]
    fates += [(lost.doubt, lost.fate) for lost in gone]
    if unread := [t for t in state.attempted() if t not in (attempts or ())]:
        errors.print(
            "not searched for undecided attempts of protocol=idempotent (use --attempts TOPIC): "
            f"{escape(', '.join(unread))}",
            soft_wrap=True,
        )
    if as_json:
        print_json([_document(doubt, fate) for doubt, fate in fates])
    elif fates:
        _show(fates)
    else:
        people.print(f"nothing in doubt at {escape(state.where)}", soft_wrap=True)
    for entry in gone:
        errors.print(escape(entry.text), soft_wrap=True)
    if fates:
        raise typer.Exit(FAILED)


def _gone(state: Registers, jobs: Sequence[JobState], listed: Collection[HandleName]) -> list[Lost]:
    """Lost handles of the jobs, and others that are not listed.

    Standard error says of which jobs they were not searched, and why.

    Raises ConfigError if a sinks file has other targets than its job, or than all jobs.
    """
    gone: list[Lost] = []
    misfits = 0
    for job_state in jobs:
        whose = f"handles of job {job_state.job}"
        try:
            if state.job not in (None, job_state.job):  # its sinks of the same names are others
                said = f"lost {whose}; the file is of job {state.job}"
            elif elsewhere := state.targets_elsewhere(job_state):
                said = f"{whose} at {', '.join(elsewhere)}"
            else:
                gone += lost_handles(state, job_state, listed)
                continue
        except ConfigError as error:  # a file that names no job may be of any
            misfits += 1
            if state.job is not None or misfits == len(jobs):
                raise
            said = f"lost {whose}: {error.what}"
        errors.print(escape(f"not checked: {said}"), soft_wrap=True)
    return gone


@app.command()
def commit(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Commit the decided handles of a job, as its next start would.

    It counts what it has committed itself, and not what a run or another command has at the same time.
    """
    state = Registers.at(url, stateschema, sinks)
    before = state.of(job)
    seen: list[Event] = []
    with noted("commit", job, state.url, epochs=[d.epoch for d in before.open]) as line:
        after = state.coordinator(before, seen.append).roll_forward()
        here = [event for event in seen if isinstance(event, RolledForward) and event.here]
        line["epochs"] = [event.epoch for event in here]
    handles = sum(event.handles for event in here)
    report(
        f"[green]committed[/] {handles} handles of {len(here)} decided epochs; job "
        f"{escape(job)} has committed {done(after)}",
        as_json=as_json,
        did="committed",
        job=job,
        epochs=[event.epoch for event in here],
        handles=handles,
        frontier=after.frontier,
    )


@app.command("accept-loss")
def accept_loss(
    job: Job,
    epoch: Annotated[int, typer.Argument(help="The epoch that the error names.")],
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a job continue although decided handles were ended from outside, or a target refuses them.

    Commits the rest of the epoch, handle by handle, lists what would be lost and why, and asks for
    confirmation. Then it ends those handles in their target, so that nothing commits them later, looks
    at them again, and records the epoch as finished.
    """
    state = Registers.at(url, stateschema, sinks)
    coordinator = state.coordinator(state.of(job))
    losses = coordinator.lost(epoch)
    for loss in losses:
        unsure = loss.outcome is Outcome.UNKNOWN
        why = "refused" if loss.refusal else "perhaps lost" if unsure else "lost"
        errors.print(
            f"[red]{why}[/] {loss.committable.rows} rows of {loss.committable.handle}"
            f"{'' if loss.refusal is None else ': ' + escape(loss.refusal.what)}",
            soft_wrap=True,
        )
    lost = [entry.committable for entry in losses]
    rows = sum(committable.rows for committable in lost)
    unknown = [entry for entry in losses if entry.outcome is Outcome.UNKNOWN]
    if unknown:
        errors.print(escape(" ".join(told(unknown, "this command"))), soft_wrap=True)
    there = "are not known to be in the target" if unknown else "are not in the target"
    asked = f"{rows} rows of {len(lost)} handles {there}. Finish epoch {epoch}?"
    confirm(asked, yes=yes or not lost)
    handles = [str(committable.handle) for committable in lost]
    with noted("accept-loss", job, state.url, epoch=epoch, lost=handles):
        after = coordinator.accept_loss(epoch, lost)
    text = f"[green]finished[/] {escape(job)} up to epoch {after.frontier}"
    given_up = {"lost": handles, "rows": rows, "frontier": after.frontier}
    report(text, as_json=as_json, did="finished", job=job, epoch=epoch, **given_up)


@app.command()
def abort(
    job: Job,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    orphan: Annotated[
        list[str] | None,
        typer.Option(
            "--orphan",
            help="Also abort this handle, whose register is not here. First make sure that the "
            "register is in no other state schema either: rows that its decision names would be lost.",
        ),
    ] = None,
    fence: Annotated[
        bool,
        typer.Option(
            "--fence",
            help="Also commit what is decided, and abort what the last run has left. Raises the job's "
            "generation, so a run that is alive is fenced. The job may be started again.",
        ),
    ] = False,
    attempts: Annotated[
        str | None,
        typer.Option(
            "--attempts",
            metavar="TOPIC",
            help="Kafka, protocol=idempotent: give up what the job sent to this topic and did not "
            "decide, so that readers with winners=true continue without it. Raises the job's "
            "generation, so a live run is fenced. Add --orphan for attempts whose register is gone.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be aborted or deleted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Abort handles of a job that no decision can name. Decided handles are not touched.

    Handles of the last run's unfinished epoch stay, because that run may still be alive: start the job
    again, or fence that run.
    """
    if attempts is not None:
        _give_up(job, _cluster(url), attempts, orphan or [], dry_run=dry_run)
        return
    state = Registers.at(url, stateschema, sinks)
    stored = state.register.load(job)
    job_state = None if stored is None else stored.state
    doubts = state.in_doubt(job)
    names = [doubt.handle for doubt in doubts]
    if job_state is None and (fence or not orphan):
        raise _no_register(state, job, names)
    planned = job_state
    if fence and job_state is not None:
        state.check_whole(job_state)
        planned = raised(job_state)
    swept = [] if planned is None else protocol.sweep(planned, planned.generation, names)
    orphans = [_orphan(text, names, job_state) for text in orphan or ()]
    doomed = [*swept, *orphans]
    if fence and planned is not None:  # the fence commits what is decided
        names = [name for name in names if not any(name in d.held for d in planned.open)]
    ended = [doubt for doubt in doubts if doubt.handle in set(doomed)]
    if not dry_run:
        with noted("abort", job, state.url, handles=[str(handle) for handle in doomed]) as line:
            if fence and job_state is not None:
                committer = state.committer(job_state)
                with noted("fence", job, state.url):
                    ended, names = fenced(state.register, committer, job_state, doubts, orphans)
            else:
                state.committer(job_state).abort(doomed)
            line["handles"] = [str(doubt.handle) for doubt in ended]
    if as_json:
        fate = "will be aborted" if dry_run else "aborted"
        print_json([_document(doubt, fate) for doubt in ended])
    elif dry_run:
        _show([(doubt, "will be aborted") for doubt in ended])
    said = "would abort" if dry_run else "aborted"
    left = len(set(names).difference(doubt.handle for doubt in ended))
    why = f": {_LEFT}" if left else ""
    errors.print(f"[green]{said}[/] {len(ended)} handles; {left} left{why}")


def _cluster(url: str | None) -> str:
    if url is None:
        raise ConfigError("--attempts needs the cluster.", remedy="name it with --url kafka://...")
    return url


def _give_up(job: str, url: str, topic: str, orphans: list[str], *, dry_run: bool) -> None:
    if dry_run:
        raise ConfigError(
            "--dry-run cannot be combined with --attempts.",
            remedy="`abs in-doubt list --attempts TOPIC` shows what would be given up.",
        )
    named = [handle_of(text, "abs in-doubt list --attempts TOPIC") for text in orphans]
    from abs_cli.kafka_attempts import give_up_named

    with noted("give up attempts", job, url, topic=topic, orphans=orphans):
        given_up = give_up_named(url, topic, job, named)
    for attempt in given_up:
        errors.print(
            f"[green]given up[/] what job {job} did not decide before generation {attempt.generation} "
            f"(register {attempt.register}); {attempt.note}"
        )


def _show(fates: Sequence[tuple[InDoubt, str]]) -> None:
    sized = any(doubt.size is not None for doubt, _ in fates)
    table = Table("job", "epoch", "task", "age", *(["size"] * sized), "fate", "handle", box=None)
    for doubt, fate in fates:
        handle = doubt.handle
        age = "" if doubt.age_seconds is None else f"{doubt.age_seconds:.0f} s"
        where = ("-", "-") if _is_bounded(handle) else (str(handle.epoch), str(handle.partition))
        size = [decimal(doubt.size) if doubt.size is not None else ""] * sized
        table.add_row(handle.job, *where, age, *size, fate, _shown(handle))
    print_table(table)


def _is_bounded(handle: HandleName) -> bool:
    """Whether the handle names a reused place (Kafka), which contains no epoch."""
    return handle.epoch == NO_EPOCH


def _shown(handle: HandleName) -> str:
    """The handle for people, without the epoch of a bounded name; --json has it unchanged."""
    text = str(handle)
    return text.replace(f":{NO_EPOCH}:", ":-:", 1) if _is_bounded(handle) else text


def _no_register(state: Registers, job: str, left: Sequence[HandleName]) -> ConfigError:
    """The error for a misspelt job, or one whose register is gone."""
    if not left:
        return state.unknown(job)
    return ConfigError(
        f"There is no register of job {job!r} here, but {len(left)} handles of it are in doubt.",
        remedy="make sure that its register is in no other place or state schema; then name each "
        "handle with --orphan, as `abs in-doubt list` shows it.",
    )


def _orphan(text: str, names: list[HandleName], job_state: JobState | None) -> HandleName:
    for name in names:
        if text in (str(name), _shown(name)) and (
            job_state is None or name.register != job_state.register
        ):
            return name
    raise ConfigError(
        f"{text!r} is not a handle in doubt of this job, or its register is here.",
        remedy="see `abs in-doubt list`; a handle whose register is here needs no --orphan.",
    )


def _document(doubt: InDoubt, fate: str) -> dict[str, object]:
    handle = doubt.handle
    return {
        "handle": str(handle),
        "job": handle.job,
        "epoch": None if _is_bounded(handle) else handle.epoch,
        "partition": None if _is_bounded(handle) else handle.partition,
        "age_seconds": doubt.age_seconds,
        "size": doubt.size,
        "fate": fate,
        "detail": doubt.detail,
    }
