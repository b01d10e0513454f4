"""What a run of a job is called, and what was said of it at its start; needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunName:
    """One start of one job.

    Args:
        job: the register key, see ``abs_core.model.job_key``.
        lineage: whose epoch numbers these are.
        run: Spark's run id; for a batch write, a random one.
        checkpoint: where the query's checkpoint lies, see ``certificates.location``.
    """

    job: str
    lineage: str
    run: str
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Announced:
    """What the planner has done for this epoch's run, before the first row.

    Args:
        checked: the preflight; its warnings are on the driver's console.
        shown: the guarantee.
    """

    checked: bool = False
    shown: bool = False
