"""What every engine says when a job starts: preflight findings, and the derived guarantee."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from abs_core.errors import PreflightError
from abs_core.model import Finding, Guarantee, Severity


def check(findings: Sequence[Finding], job: str, log: logging.Logger) -> tuple[str, ...]:
    """The warnings among the findings, as text to be logged as such; notes go to ``log``.

    Raises:
        PreflightError: with all that is wrong, where anything is.
    """
    errors = [f for f in findings if f.severity is Severity.ERROR]
    if errors:
        raise PreflightError(
            " ".join(finding.what for finding in errors),
            remedy=" ".join(finding.remedy for finding in errors if finding.remedy),
            job=job,
        )
    for finding in findings:
        if finding.severity is Severity.NOTE:
            log.info("job %s: %s", job, _text(finding))
    return tuple(f"job {job}: {_text(f)}" for f in findings if f.severity is Severity.WARNING)


def describe(sink: str, guarantee: Guarantee, job: str) -> str:
    """The guarantee as one text for people."""
    who = f"{sink}, job {job}"
    how = f"protocol {guarantee.protocol}, write {guarantee.write}"
    lines = [
        f"{who}: every row exactly once ({how}).",
        f"Visible: {guarantee.visibility}",
        f"Readers: {guarantee.reader}",
        *(f"Limit: {limit}" for limit in guarantee.limits),
        *guarantee.notes,
    ]
    return "\n    ".join(lines)


def _text(finding: Finding) -> str:
    return f"{finding.what} {finding.remedy}".rstrip()
