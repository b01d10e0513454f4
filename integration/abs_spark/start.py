"""What is checked and said when a query starts: preflight findings and the derived guarantee."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from abs_core.errors import PreflightError
from abs_core.model import Finding, Guarantee, Severity
from abs_spark.target import Target

_log = logging.getLogger("abs_spark.start")

_announced: set[tuple[Target, str | None]] = set()


def announce(target: Target, job: str | None) -> bool:
    """On the driver, before the first row: check the target and show the guarantee, once.

    Spark asks its planner process for a writer at every epoch, and does not say for which run; so
    "once" is for each target and job in the life of that process. Where that leaves a run out (a
    query restarted in the same driver), the commit process shows the guarantee instead.

    Args:
        job: the register key; None where the driver cannot know it: then the tasks check.

    Returns:
        whether it was done now.

    Raises:
        PreflightError: the target cannot keep the promise.
        TargetError: it cannot be reached, or refuses; there is no patience at a start.
    """
    if (target, job) in _announced:
        return False
    sink = target.sink()
    try:
        if job is not None:
            for warning in check(sink.preflight(job), job):
                _log.warning(warning)
        show(target, sink.guarantee(), job)
    finally:
        sink.close()
    _announced.add((target, job))
    return True


def check(findings: Sequence[Finding], job: str) -> tuple[str, ...]:
    """The warnings among the findings, as text; notes go to the log.

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
            _log.info("job %s: %s", job, _text(finding))
    return tuple(
        f"job {job}: WARNING: {_text(f)}" for f in findings if f.severity is Severity.WARNING
    )


def show(target: Target, guarantee: Guarantee, job: str | None) -> None:
    """Print what the sink promises with these options."""
    _log.info("%s", describe(target.format.name, guarantee, job))


def describe(sink: str, guarantee: Guarantee, job: str | None) -> str:
    """The guarantee as one text for people."""
    who = f"{sink}{f', job {job}' if job else ''}"
    how = f"protocol {guarantee.protocol}, write {guarantee.write}"
    lines = [
        f"{who}: every row exactly once ({how}).",
        f"Visible: {guarantee.visibility}",
        f"Readers: {guarantee.reader}",
        *(f"Limit: {limit}" for limit in guarantee.limits),
    ]
    return "\n    ".join(lines)


def _text(finding: Finding) -> str:
    return f"{finding.what} {finding.remedy}".rstrip()
