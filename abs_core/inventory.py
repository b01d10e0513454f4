"""Shared parts of every ``contracts.Inventory``."""

from __future__ import annotations

from collections.abc import Iterable

from abs_core.errors import ProtocolError
from abs_core.model import JobState


def batch_job(job: str) -> str:
    """The job's key without the token of a batch write."""
    return job.partition("@")[0]


def others_among(states: Iterable[JobState], target: str, job: str) -> list[str]:
    """``Inventory.others_on``, computed from all states."""
    names = {batch_job(state.job) for state in states if state.target == target}
    return sorted(names - {batch_job(job)})


def check_finished(state: JobState) -> None:
    """Check that a job may be forgotten.

    Raises:
        ProtocolError: a decision is not finished.
    """
    if state.open:
        raise ProtocolError(
            f"The job has {len(state.open)} decided epoch(s) that are not finished.",
            job=state.job,
            epoch=state.open[0].epoch,
            remedy="start the job once more, so that they are committed, then retire it; if it stops "
            "because handles are lost, see `abs in-doubt accept-loss`.",
        )
