"""Reports preflight findings and the guarantee when a job starts, for every engine."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from abs_core.errors import PreflightError
from abs_core.model import Finding, Guarantee, Severity


def check(findings: Sequence[Finding], job: str, log: logging.Logger) -> tuple[str, ...]:
    """Log the notes and return the warnings as text.

    Raises:
        PreflightError: lists all errors among the findings.
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
    """Format the guarantee for display."""
    who = f"{sink}, job {job}"
    how = f"protocol {guarantee.protocol}, write {guarantee.write}"
    lines = [
        f"{who}: every row {guarantee.times} ({how}).",
        f"Visible: {guarantee.visibility}",
        f"Readers: {guarantee.reader}",
        *(f"Limit: {limit}" for limit in guarantee.limits),
        *guarantee.notes,
    ]
    return "\n    ".join(lines)


def _text(finding: Finding) -> str:
    return f"{finding.what} {finding.remedy}".rstrip()
