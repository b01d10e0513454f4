"""What a run of a job is called, and what was said of it at its start; needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunName:
    """One start of one job.

    Args:
        job: the register key, see ``abs_core.model.job_key``.
        lineage: whose epoch numbers these are.
        run: Spark's run id, of a query with that of its driver, see ``run_of``; for a batch write, a
            random one.
        checkpoint: where the query's checkpoint lies, see ``certificates.location``.
    """

    job: str
    lineage: str
    run: str
    checkpoint: str | None = None


def run_of(run: str, driver: str | None) -> str:
    """What a query's run is called: the driver can tell it from others' in the register.

    Args:
        run: Spark's id, which its planner and commit processes are not told.
        driver: see ``driver.driver_id``.
    """
    return run if driver is None else f"{run}@{driver}"


def is_run_of(run: str, driver: str) -> bool:
    """Whether a run is of this driver, and has not given itself up."""
    return run.endswith(f"@{driver}")


@dataclass(frozen=True, slots=True)
class Announced:
    """What the planner has done for this epoch's run, before the first row.

    Args:
        checked: the preflight; its warnings are on the driver's console.
        shown: the guarantee.
    """

    checked: bool = False
    shown: bool = False
