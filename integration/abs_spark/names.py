"""Names of runs, without an import of Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunName:
    """One start of one job.

    Args:
        job: the register key, see ``abs_core.model.job_key``.
        lineage: id of the query that numbers the epochs.
        run: for a query, Spark's run id and the driver's id, see ``run_of``; for a batch write, a
            random id.
        checkpoint: the checkpoint's location, see ``certificates.location``.
    """

    job: str
    lineage: str
    run: str
    checkpoint: str | None = None


def run_of(run: str, driver: str | None) -> str:
    """The name of a query's run, which lets the driver recognise it in the register.

    Args:
        run: Spark's run id, which planner and commit processes do not know.
        driver: see ``driver.driver_id``.
    """
    return run if driver is None else f"{run}@{driver}"


def is_run_of(run: str, driver: str) -> bool:
    """Whether the run belongs to this driver and has not ended itself."""
    return run.endswith(f"@{driver}")


@dataclass(frozen=True, slots=True)
class Announced:
    """Which start-up steps the planner has done, before the first row.

    Args:
        checked: it ran the preflight and logged its warnings.
        shown: it printed the guarantee.
    """

    checked: bool = False
    shown: bool = False
