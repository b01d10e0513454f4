"""The checks of ``abs doctor`` for one sink, and how it prints their findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from abs_cli.output import people
from abs_core.errors import AbsError
from abs_core.model import Finding, Guarantee, Severity

if TYPE_CHECKING:
    from abs_sinks.door import Around


@dataclasses.dataclass(frozen=True, slots=True)
class Looked:
    """What was found out about one sink."""

    findings: Sequence[Finding]
    promise: Guarantee
    logins: Sequence[Finding] = ()


_COLOUR = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def look(name: str, given: Mapping[str, str], around: Around) -> Looked:
    """Look at one sink; raises as ``format_named``."""
    from abs_sinks.door import format_named
    from abs_spark.target import parse

    found = format_named(name)
    options = parse(found, given, started=False)
    try:
        logins = found.logins(options)
    except AbsError as error:
        logins = [Finding.of(error)]  # the preflight, which logs in, too, judges what it means
    return Looked(found.preflight(options, around), found.guarantee(options), logins)


def fails(findings: Iterable[Finding]) -> bool:
    """Whether a job with these findings would not run."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def document(looked: Looked) -> dict[str, object]:
    """What was found out about one sink, for JSON."""
    return {
        "logins": listed(looked.logins),
        "findings": listed(looked.findings),
        "guarantee": dataclasses.asdict(looked.promise),
    }


def listed(findings: Sequence[Finding]) -> list[dict[str, object]]:
    return [dataclasses.asdict(finding) for finding in findings]


def show_findings(findings: Sequence[Finding]) -> None:
    _show_each(findings)
    if not findings:
        people.print("[green]no problems found[/]")


def _show_each(findings: Sequence[Finding]) -> None:
    for finding in findings:
        colour = _COLOUR[finding.severity]
        people.print(f"[{colour}]{finding.severity}[/] {escape(finding.what)}")
        if finding.remedy:
            people.print(f"  what to do: {escape(finding.remedy)}")


def show(looked: Looked) -> None:
    findings, promise = looked.findings, looked.promise
    _show_each(looked.logins)
    show_findings(findings)
    people.print(
        f"{'once that is corrected: ' if fails(findings) else ''}every row exactly once (protocol "
        f"{promise.protocol}, write {promise.write})"
    )
    people.print(f"  visible: {promise.visibility}")
    people.print(f"  readers: {promise.reader}")
    for limit in promise.limits:
        people.print(f"  limit: {limit}")
    for note in promise.notes:
        people.print(f"  {note}")
