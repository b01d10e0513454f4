"""Prints a report for people, by rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from abs_audit.epochs import EpochFound
from abs_audit.report import LeftBehind, Report

_MEANING = {
    "missing": "expected, but not found",
    "duplicate": "found more often than expected",
    "unexpected": "found, but not expected",
    "corrupted": "found, with other content",
}


def show(report: Report, console: Console) -> None:
    verdict = "[bold green]CLEAN[/]" if report.clean else "[bold red]NOT CLEAN[/]"
    lines = (
        *_samples(report),
        *_left_behind(report.left_behind),
        f"{verdict}  {report.reads} reads of the target, {report.seconds:.1f} s",
        *(f"  [red]- {escape(reason)}[/]" for reason in report.reasons),
        *(f"[dim]note: {escape(note)}[/]" for note in report.notes),
    )
    console.print(_counts(report), *lines, sep="\n", highlight=False)


def show_epochs(epochs: Sequence[EpochFound], console: Console) -> None:
    """Print whether each epoch is whole in all targets, or in none; one line for each that is not."""
    wrong = [found.shortcoming for found in epochs if found.shortcoming]
    for line in wrong:
        console.print(f"  [red]- {escape(line)}[/]", highlight=False)
    committed = sum(found.committed for found in epochs)
    verdict = "[bold red]NOT CLEAN[/]" if wrong else "[bold green]CLEAN[/]"
    targets = escape(", ".join(dict.fromkeys(name for each in epochs for name in each.found)))
    console.print(
        f"{verdict}  epoch by epoch: {len(epochs)} looked for in {targets}; {committed} are committed",
        highlight=False,
        soft_wrap=True,
    )


def _counts(report: Report) -> Table:
    table = Table("", Column("records", justify="right"), "", box=None, pad_edge=False)
    differences = report.differences
    table.add_row("expected", f"{differences.expected:,}", escape(report.expected_name))
    table.add_row("actual", f"{differences.actual:,}", escape(report.actual_name))
    for kind, meaning in _MEANING.items():
        count = differences.figures()[kind]
        table.add_row(kind, f"{count:,}", f"[dim]{meaning}[/]", style="red" if count else None)
    return table


def _samples(report: Report) -> Iterator[str]:
    for kind, samples in report.differences.samples.items():
        for sample in samples:
            named = " ".join(f"{name}={_value(text)}" for name, text in sample.identity.items())
            times = f" [dim]({sample.records} records)[/]" if sample.records > 1 else ""
            yield f"[red]{kind}[/] {escape(named)}{times}"
            for column, (before, after) in sample.changed.items():
                yield escape(f"    {column}: expected {_value(before)}, found {_value(after)}")


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
