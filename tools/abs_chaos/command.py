"""``abs chaos``: is MY job exactly-once? Runs it, kills it again and again, audits its target."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from abs_cli import audit as audited
from abs_cli.audit_job import audit_job, compared_by
from abs_cli.output import (
    FAILED,
    AsJson,
    errors,
    of_kind,
    one_of,
    people,
    print_json,
    write_report,
)
from abs_cli.sinksfile import SinksFile
from abs_core.errors import OptionError
from abs_services.command import kinds_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from abs_audit import AuditSettings
    from abs_chaos.blame import Blame
    from abs_chaos.killing import Killed
    from abs_chaos.moments import Sight
    from abs_chaos.outcome import Course, Outcome
    from abs_chaos.process import JobProcess
    from abs_chaos.run import ChaosSettings

Command = Annotated[list[str], typer.Argument(help="The job's command, after --.")]
Kills = Annotated[int, typer.Option(help="How often the job is killed.")]
Every = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS",
        help="Kill by the clock: after so many seconds on average, such as 10s. The default without "
        "--checkpoint.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="MOMENT",
        help="Kill in this phase of an epoch only: committed (the sink's commit() is through, and "
        "Spark's commits/N is not written), writing, or between. With --every it is every second kill "
        "that waits for it. Default with --checkpoint: each.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="The Spark query's checkpointLocation, on this machine: it shows the phases."
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Chooses the moments of the kills; default: random.")
]
Quiet = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS",
        help="The job never ends by itself: it is through when the checkpoint shows no new epoch for "
        "so long.",
    ),
]
Stalled = Annotated[
    str, typer.Option(metavar="SECONDS", help="Give up if no epoch ends for so long.")
]
Failures = Annotated[
    int,
    typer.Option(help="How often in a row the job may fail by itself, and is started again."),
]
Also = Annotated[
    str,
    typer.Option(
        metavar="SERVERS",
        help="Let these servers of `abs up` go away under the job, too (stopped, frozen or killed), as "
        "often as it is killed: postgres, kafka, s3, with commas.",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=of_kind(".json", ".html", ".svg"),
        help="Also write the result to FILE.json, as a page for a browser to FILE.html, or as a "
        "picture to FILE.svg.",
    ),
]
Log = Annotated[
    Path | None, typer.Option(help="For the job's output. Default: a file that is named.")
]


def chaos(
    *,
    command: Command,
    sinks: audited.Sinks = None,
    epochs: audited.Epochs = False,
    expected: audited.Expected = None,
    actual: audited.Actual = None,
    table: audited.Table = None,
    expected_table: audited.ExpectedTable = None,
    key: audited.Key = "",
    columns: audited.Columns = "",
    schema: audited.Schema = None,
    null: audited.Null = None,
    settle: audited.Settle = 10.0,
    samples: audited.Samples = 10,
    state_schema: audited.StateSchema = "abs",
    kills: Kills = 5,
    every: Every = None,
    at: At = None,
    checkpoint: Checkpoint = None,
    seed: Seed = None,
    quiet: Quiet = None,
    stalled: Stalled = "300s",
    also: Also = "",
    failures: Failures = 3,
    log: Log = None,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Run a job, kill all of its processes by SIGKILL again and again, and audit its target.

    The job may use any sink. It is started again after each kill, until it ends by itself. Exit code
    0: every kill was carried out, and every row is in the target exactly once; with --sinks in each
    target that has an audit in the file. 1: otherwise.
    """
    from abs_audit import AuditSettings, relation
    from abs_chaos.moments import Moment
    from abs_chaos.page import page, picture
    from abs_chaos.run import ChaosSettings, chaos

    if sinks is not None and report is not None:
        raise typer.BadParameter("not with --sinks.", param_hint="--report")
    if epochs and sinks is None:
        raise typer.BadParameter("it needs --sinks.", param_hint="--epochs")
    if sinks is None and not (expected and actual):
        raise typer.BadParameter("name both sides.", param_hint="--expected and --actual")
    job = None if sinks is None else SinksFile.read(sinks)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    settings = ChaosSettings(
        command,
        log or _new_log(),
        seed=seed,
        kills=kills,
        checkpoint=checkpoint,
        every_s=None if every is None else seconds(every, "--every"),
        moment=None if at is None else one_of(Moment, "moment", at),
        failures=failures,
        quiet_s=None if quiet is None else seconds(quiet, "--quiet"),
        stalled_after_s=seconds(stalled, "--stalled"),
        also=kinds_named(also.split(",")) if also else (),
        count_rows=report is not None,
    )
    compared = AuditSettings(**compared_by(key, columns, schema), settle=settle, samples=samples)
    errors.print(f"seed {seed}; the job's output: {settings.log}", soft_wrap=True, markup=False)
    if job is not None:
        _all_targets(job, settings, compared, by_epoch=epochs, as_json=as_json)
        return
    assert expected
    assert actual
    source = relation(expected, table=expected_table, null=null, stateschema=state_schema)
    target = relation(actual, table=table, null=null, stateschema=state_schema)
    with audited.exit_code_1_for_findings_only():
        outcome = chaos(settings, source, target, compared, _Lines())
    if report is not None:
        write_report(report, lambda: page(outcome), outcome.to_dict, lambda: picture(outcome))
    if as_json:
        print_json(outcome.to_dict())
    else:
        _show(outcome)
    if not outcome.clean:
        raise typer.Exit(FAILED)


def _all_targets(
    job: SinksFile,
    settings: ChaosSettings,
    compared: AuditSettings,
    *,
    by_epoch: bool,
    as_json: bool,
) -> None:
    """Run the job to its end under kills, and audit its targets; raises ``Exit`` if it is not clean."""
    from abs_chaos.run import course_of

    with audited.exit_code_1_for_findings_only():
        course = course_of(settings, _Lines())
        audits = audit_job(job, compared, by_epoch=by_epoch, strict=False)
    shortcomings = (*audits.shortcomings, *course.too_few)
    if as_json:
        whether = {"clean": not shortcomings, "shortcomings": list(shortcomings)}
        print_json({**whether, "seed": course.seed, **course.figures(), "audit": audits.to_dict()})
    else:
        audits.show()
        _show_verdict(course, shortcomings, ())
    if shortcomings:
        raise typer.Exit(FAILED)


class _Lines:
    """A line for each kill, and each server that goes away."""

    def update(self, sight: Sight, process: JobProcess, *, aiming: bool) -> None:
        """Nothing is shown between kills."""

    def killed(self, number: int, kill: Killed, sight: Sight) -> None:
        line = (
            f"{kill.at_seconds:7.1f} s  SIGKILL #{number} {kill.story} ({kill.processes} processes)"
            if kill.server is None
            else f"{kill.at_seconds:7.1f} s  #{number} {kill.server}, {kill.story}"
        )
        errors.print(line, soft_wrap=True, markup=False)


def _show(outcome: Outcome) -> None:
    from abs_audit.render import show

    show(outcome.report, people)
    _show_verdict(outcome, outcome.shortcomings, outcome.blamed)


def _show_verdict(course: Course, shortcomings: Sequence[str], blames: Sequence[Blame]) -> None:
    p50, p99 = course.recovery(0.5), course.recovery(0.99)
    recovered = "" if p50 is None else f", {p50:.1f} s to recover (p50), {p99:.1f} s (p99)"
    away = f", {len(course.blows)} times a server went away" if course.blows else ""
    figures = f"{len(course.kills)} x SIGKILL{away}, {course.job_seconds:.0f} s{recovered}."
    if not shortcomings:
        people.print(f"[bold green]Exactly once.[/] {figures}", soft_wrap=True)
        return
    why = escape("; ".join(shortcomings))
    people.print(f"[bold red]Not exactly once:[/] {why}.", soft_wrap=True)
    for blame in blames:
        people.print(f"  {blame.story}", soft_wrap=True)
    people.print(f"{figures} To repeat it: --seed {course.seed}", soft_wrap=True)


def seconds(text: str, option: str) -> float:
    """A time in seconds; ``10``, ``10s`` and ``2m`` are understood. Raises OptionError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|)", text.strip())
    if match is None:
        raise OptionError(f"{option} is {text!r}.", remedy="give seconds, such as 10s or 0.5s.")
    return float(match[1]) * {"ms": 0.001, "m": 60.0}.get(match[2], 1.0)


def _new_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="abs-chaos-", suffix=".log")
    os.close(descriptor)
    return Path(name)
