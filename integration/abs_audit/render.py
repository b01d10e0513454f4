"""Prints a report for people, by rich."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from abs_audit.duplicates import Duplicate
from abs_audit.epochs import EpochFound
from abs_audit.following import Round
from abs_audit.report import Differences, LeftBehind, Report
from abs_clients.tablelog import TableHistory

_PAGE_COLUMNS = 160
_BRACES = str.maketrans({"{": "{{", "}": "}}"})

SHOWN = 5
"""Commits and files that are shown of a finding; ``--json`` has all."""

_MEANING = {
    "missing": "expected, but not found",
    "duplicate": "found more often than expected",
    "unexpected": "found, but not expected",
    "corrupted": "found, with other content",
}


def show(report: Report, console: Console) -> None:
    verdict = "[bold green]CLEAN[/]" if report.clean else "[bold red]NOT CLEAN[/]"
    lines = (
        *_samples(report.differences),
        *_left_behind(report.left_behind),
        f"{verdict}  {report.reads} reads of the target, {report.seconds:.1f} s",
        *(f"  [red]- {escape(reason)}[/]" for reason in report.reasons),
        *(f"[dim]note: {escape(note)}[/]" for note in report.notes),
    )
    console.print(_counts(report), *lines, sep="\n", highlight=False)


_PAGE = """<!DOCTYPE html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>VERDICT - abs audit</title>
<style>
{stylesheet}
body {{ color: {foreground}; background: {background}; font: 15px/1.5 system-ui, sans-serif;
  max-width: 1000px; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }}
pre {{ white-space: pre-wrap; font: 13px/1.5 monospace }}
</style>
<h1>VERDICT</h1>
<p>EXPECTED against ACTUAL, TIME</p>
<pre>{code}</pre>
</html>
"""


def page(report: Report) -> str:
    """What ``show`` prints, as one HTML page that loads nothing; lines wrap on a narrow screen."""
    console = Console(record=True, file=StringIO(), width=_PAGE_COLUMNS, force_terminal=True)
    show(report, console)
    words = {
        "VERDICT": "Clean" if report.clean else "Not clean",
        "EXPECTED": report.expected_name,
        "ACTUAL": report.actual_name,
        "TIME": datetime.now(UTC).isoformat(" ", "seconds"),
    }
    # Names may have braces, which would be fields of the library's format.
    form = re.sub(
        "|".join(words), lambda word: html.escape(words[word[0]]).translate(_BRACES), _PAGE
    )
    return console.export_html(theme=DEFAULT_TERMINAL_THEME, code_format=form)


def show_round(look: Round, console: Console) -> None:
    """Print one look at a job that runs: one line, and what is wrong below it."""
    differences = look.differences
    colour, verdict = ("red", "ALARM") if look.reasons else ("green", "ok")
    oldest = f" (oldest {look.oldest_seconds:.0f} s)" if look.in_flight else ""
    lines = (
        "  ".join(
            (
                f"{datetime.now(UTC):%H:%M:%S}",
                f"[bold {colour}]{verdict}[/]",
                f"expected {differences.expected:,}",
                f"actual {differences.actual:,}",
                f"in flight {look.in_flight:,}{oldest}",
            )
        ),
        *(f"  [red]- {escape(reason)}[/]" for reason in look.reasons),
        *(_samples(differences) if look.reasons else ()),
    )
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def show_epochs(epochs: Sequence[EpochFound], console: Console) -> None:
    """Print whether each epoch is whole in all targets, or in none; one line for each that is not."""
    wrong = [entry.shortcoming for entry in epochs if entry.shortcoming]
    for line in wrong:
        console.print(f"  [red]- {escape(line)}[/]", highlight=False)
    committed = sum(entry.committed for entry in epochs)
    verdict = "[bold red]NOT CLEAN[/]" if wrong else "[bold green]CLEAN[/]"
    targets = escape(", ".join(dict.fromkeys(name for entry in epochs for name in entry.found)))
    console.print(
        f"{verdict}  epoch by epoch: {len(epochs)} looked for in {targets}; {committed} are committed",
        highlight=False,
        soft_wrap=True,
    )


def show_duplicates(
    history: TableHistory, duplicates: Sequence[Duplicate], console: Console
) -> None:
    """Print what a table's log tells of rows that were written twice."""
    at = {commit.name: commit.at for commit in history.commits}
    for duplicate in duplicates:
        rows = f", {duplicate.rows:,} rows" if duplicate.rows else ""
        line = (
            f"[red]- {escape(duplicate.what)}{rows}[/]"
            if duplicate.certain
            else f"[yellow]- perhaps: {escape(duplicate.what)}{rows}[/]"
        )
        console.print(line, highlight=False, soft_wrap=True)
        for name in duplicate.commits[:SHOWN]:
            console.print(f"    {escape(name)}{_moment(at.get(name))}", highlight=False)
        more = f", and {len(duplicate.files) - SHOWN} more" if len(duplicate.files) > SHOWN else ""
        lines = [
            f"    in the newest state: {duplicate.live} of {len(duplicate.files)} files",
            f"    files: {', '.join(duplicate.files[:SHOWN])}{more}",
            f"    repair: {duplicate.repair}",
        ]
        console.print(escape("\n".join(lines)), highlight=False, soft_wrap=True)
    for commit in history.unread[:SHOWN]:
        note = (
            f"note: not compared, as it cannot be read: {', '.join(commit.unread)} of {commit.name}"
        )
        console.print(f"[dim]{escape(note)}[/]", highlight=False, soft_wrap=True)
    if len(history.unread) > SHOWN:
        console.print(f"[dim]note: and of {len(history.unread) - SHOWN} more commits[/]")
    certain = any(entry.certain for entry in duplicates)
    verdict = "[bold red]NOT CLEAN[/]" if certain else "[bold green]CLEAN[/]"
    console.print(
        f"{verdict}  {len(history.commits)} commits of the log were read", highlight=False
    )


def _moment(at: int | None) -> str:
    if at is None:
        return ""
    return f"  {datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec='milliseconds')}"


def _counts(report: Report) -> Table:
    table = Table("", Column("records", justify="right"), "", box=None, pad_edge=False)
    differences = report.differences
    table.add_row("expected", f"{differences.expected:,}", escape(report.expected_name))
    table.add_row("actual", f"{differences.actual:,}", escape(report.actual_name))
    for kind, meaning in _MEANING.items():
        count = differences.figures()[kind]
        table.add_row(kind, f"{count:,}", f"[dim]{meaning}[/]", style="red" if count else None)
    return table


def _samples(differences: Differences) -> Iterator[str]:
    for kind, samples in differences.samples.items():
        for sample in samples:
            named = " ".join(f"{name}={_value(text)}" for name, text in sample.identity.items())
            times = f" [dim]({sample.records} records)[/]" if sample.records > 1 else ""
            yield f"[red]{kind}[/] {escape(named)}{times}"
            for column, (before, after) in sample.changed.items():
                yield escape(f"    {column}: expected {_value(before)}, found {_value(after)}")
            for side, places in (("expected", sample.expected_in), ("found", sample.found_in)):
                if places:
                    yield f"    [dim]{side} in {escape('; '.join(places))}[/]"
        total, shown = differences.figures()[kind], sum(sample.records for sample in samples)
        if shown < total:
            yield f"[dim]{shown:,} of {total:,} {kind} are shown; --samples {total} shows all[/]"


def _value(text: str | None) -> str:
    return "NULL" if text is None else repr(text)


def _left_behind(left: LeftBehind | None) -> Iterator[str]:
    """One line for each unfinished write."""
    if left is None:
        return
    for prepared in left.prepared:
        where = "on the table" if prepared.on_table else "elsewhere"
        yield escape(f"prepared {prepared.gid} ({where}, {prepared.age_seconds:.0f} s old)")
    if left.foreign_prepared:
        yield f"{left.foreign_prepared} prepared transaction(s) of other programs"
    for staging in left.staging:
        yield escape(
            f"staging table {staging.table} ({_rows(staging.rows, staging.counted_up_to)})"
        )
    for decision in left.decisions:
        yield escape(f"open decision: job {decision.job}, epoch {decision.epoch}")
    for lock in left.locks:
        yield escape(f"lock {lock.mode} of {lock.holder}")
    for pending in left.pending:
        age = "" if pending.age_seconds is None else f" ({pending.age_seconds:.0f} s old)"
        yield escape(f"unfinished: {pending.what}{age}")


def _rows(rows: int | None, most: int) -> str:
    if rows is None:
        return "not readable"
    return f"{rows:,}{' or more' if rows == most else ''} rows"
