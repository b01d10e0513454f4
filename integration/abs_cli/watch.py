"""``abs watch``: the jobs of a register as they run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from abs_cli.output import AsJson, errors, people
from abs_cli.sites import Registers, Schema, Sinks, Url
from abs_core.errors import UnavailableError
from abs_core.model import InDoubt, JobState
from abs_core.ownwrite import counted

QUIET_S = 60.0
"""A register that has not changed for so long, in seconds, belongs to a job that waits or has ended."""
STUCK_S = 180.0
"""A step that takes longer than the default of ``patience`` is stuck."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a job.

    Args:
        at: when, by this machine's clock, in seconds.
        changed: when its register last changed, by the system's clock; None if it does not say.
    """

    at: float
    state: JobState
    changed: float | None
    doubts: tuple[InDoubt, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """What is shown of a job.

    Args:
        per_minute: epochs, since the first look; None at the first one.
        rows: of the last finished epoch; None if it is not known.
        oldest: age of the oldest handle in doubt, in seconds.
        quiet: seconds since the register last changed.
        status: ``running``, ``quiet``, ``in doubt`` or ``stuck``.
        do: what to do next; empty if nothing.
    """

    job: str
    generation: int
    frontier: int | None
    per_minute: float | None
    rows: int | None
    in_doubt: int
    oldest: float | None
    quiet: float | None
    status: str
    do: str


def line_of(first: Seen, now: Seen) -> Line:
    """What two looks at a job say."""
    state = now.state
    ages = [one.age_seconds for one in now.doubts if one.age_seconds is not None]
    oldest = max(ages, default=None)
    quiet = None if now.changed is None else max(0.0, now.at - now.changed)
    status, do = _assessed(state, now.doubts, oldest, quiet)
    done = [counted(state, one) for one in state.recent if one.epoch == state.frontier]
    return Line(
        state.job,
        state.generation,
        state.frontier,
        _per_minute(first, now),
        done[-1] if done else None,
        len(now.doubts),
        oldest,
        quiet,
        status,
        do,
    )


def _per_minute(first: Seen, now: Seen) -> float | None:
    seconds = now.at - first.at
    if seconds <= 0:
        return None
    before = -1 if first.state.frontier is None else first.state.frontier
    after = -1 if now.state.frontier is None else now.state.frontier
    return round((after - before) * 60 / seconds, 1)


def _assessed(
    state: JobState, doubts: Sequence[InDoubt], oldest: float | None, quiet: float | None
) -> tuple[str, str]:
    """Status, and what to do."""
    waits = quiet is not None and quiet > QUIET_S
    if state.open and quiet is not None and quiet > STUCK_S:
        epochs = ", ".join(str(one.epoch) for one in state.open)
        return "stuck", (
            f"epoch {epochs} is decided and not finished: start job {state.job}; its error says why, "
            f"see `abs explain-error`. Which handles: `abs in-doubt list`"
        )
    if doubts and waits and (oldest is None or oldest > QUIET_S):
        return "in doubt", (
            f"nothing commits what is prepared: start job {state.job}, or, if it will never start "
            "again, end its handles as `abs in-doubt list` says"
        )
    return ("quiet" if waits else "running"), ""


def look(registers: Registers, jobs: Sequence[str]) -> dict[str, Seen]:
    """The jobs as they are now; all of the register if none is named. Raises TargetError."""
    found = [one for one in registers.jobs() if not jobs or one.state.job in jobs]
    doubts = registers.in_doubt(None) if found else []
    now = time.time()
    return {
        stored.state.job: Seen(
            now,
            stored.state,
            stored.changed,
            tuple(one for one in doubts if one.handle.job == stored.state.job),
        )
        for stored in found
    }


def lines(first: Mapping[str, Seen], now: Mapping[str, Seen]) -> list[Line]:
    return [line_of(first.get(job, seen), seen) for job, seen in now.items()]


_STYLES = {"running": "green", "quiet": "dim", "in doubt": "yellow", "stuck": "bold red"}


def _picture(shown: Sequence[Line]) -> Group:
    """A table, and below it what to do."""
    table = Table(box=None)
    for name in ("job", "run", "epoch", "epochs/min", "rows", "in doubt", "last change", "status"):
        table.add_column(name, justify="left" if name in ("job", "status") else "right")
    for one in shown:
        doubt = str(one.in_doubt)
        if one.oldest is not None:
            doubt += f" ({one.oldest:.0f} s)"
        table.add_row(
            escape(one.job),
            str(one.generation),
            _or_dash(one.frontier),
            _or_dash(one.per_minute),
            _or_dash(one.rows),
            doubt,
            "-" if one.quiet is None else f"{one.quiet:.0f} s ago",
            f"[{_STYLES[one.status]}]{one.status}[/]",
        )
    todo = [
        Text.from_markup(f"[{_STYLES[one.status]}]{escape(one.job)}: {escape(one.do)}[/]")
        for one in shown
        if one.do
    ]
    return Group(table, *todo)


def _without_answer(shown: Sequence[Line], seconds: float, why: UnavailableError) -> Group:
    """The last picture, and since when there is no newer one."""
    return Group(_picture(shown), Text(f"no answer for {seconds:.0f} s: {why}", style="bold red"))


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


def watch(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]...", help="Default: all jobs of the register."),
    ] = None,
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    times: Annotated[
        int | None, typer.Option(min=1, help="End after so many looks; default: until Ctrl-C.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show jobs as they run: epochs, rows, handles in doubt, and what is stuck since when.

    Each look reads the registers and lists the handles in doubt; it changes nothing. With --json each
    look prints one line, a JSON list of jobs. Clocks of this machine and of the target are compared:
    they should agree within seconds. While the target does not answer, the last look stays, with the
    reason below it; with --json, and at the first look, that is an error.
    """
    registers = Registers.at(url, stateschema, sinks)
    first: dict[str, Seen] = {}
    shown: list[Line] = []
    answered = 0.0
    count = 0
    with Live(console=people, auto_refresh=False) as live:
        while times is None or count < times:
            if count:
                time.sleep(every)
            count += 1
            try:
                now = look(registers, jobs or ())
            except UnavailableError as away:
                if as_json or not answered:
                    raise
                live.update(_without_answer(shown, time.monotonic() - answered, away), refresh=True)
                continue
            answered = time.monotonic()
            first = {**now, **first}
            shown = lines(first, now)
            if as_json:
                sys.stdout.write(json.dumps([asdict(one) for one in shown]) + "\n")
                sys.stdout.flush()
            else:
                live.update(_picture(shown), refresh=True)
    if not first and not as_json:
        errors.print(f"no job at {escape(registers.where)}", soft_wrap=True)
