"""What this process knows of the runs of queries that it drives, whichever function they call.

A user's function may call ``abs_spark.epoch`` several times, make the function anew for each batch, or
keep an error to itself. What was written, or failed, in a run is known all the same.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field

from abs_core.errors import AbsError, ProtocolError

_RUNS_KEPT = 64
_EPOCHS_KEPT = 2


@dataclass(slots=True)
class _Job:
    """One job in one run.

    Args:
        finished: its newest epochs that this run has finished.
        failed: the epoch that failed, and why: the run has given itself up.
    """

    finished: list[int] = field(default_factory=list)
    failed: tuple[int, str] | None = None


class Runs:
    """The runs of this process, by Spark's id of the run and by job."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, _Job]] = {}

    def jobs(self, run: str) -> frozenset[str]:
        """The jobs that have begun in the run."""
        return frozenset(self._runs.get(run, ()))

    def begun(self, run: str, job: str) -> None:
        """A job has begun in a run."""
        self._of(run, job)

    def finished(self, run: str, job: str, epoch: int) -> None:
        """The run has finished an epoch of the job."""
        known = self._of(run, job)
        known.finished = [*known.finished, epoch][-_EPOCHS_KEPT:]

    def has_finished(self, run: str, job: str, epoch: int) -> bool:
        """Whether the run itself has finished the epoch, and no earlier run."""
        known = self._runs.get(run, {}).get(job)
        return known is not None and epoch in known.finished

    def failed(self, run: str, job: str, epoch: int, error: BaseException) -> None:
        """An epoch has failed; the first one that did is kept."""
        known = self._of(run, job)
        if known.failed is None:
            why = error.what if isinstance(error, AbsError) else f"{type(error).__name__}: {error}"
            known.failed = epoch, why[:500]

    def check(self, run: str, job: str, epoch: int) -> None:
        """Refuse whatever comes after a batch that failed.

        Raises:
            ProtocolError: an epoch of the job has failed in this run.
        """
        known = self._runs.get(run, {}).get(job)
        if known is None or known.failed is None:
            return
        failed, why = known.failed
        raise ProtocolError(
            f"Batch {failed} failed in this run, which has given itself up; nothing more is written by "
            f"it. What had failed: {why}",
            job=job,
            epoch=epoch,
            remedy="let the error out of the function that is given to foreachBatch: the query ends, "
            f"and when it is started again it writes batch {failed} again.",
        )

    def _of(self, run: str, job: str) -> _Job:
        jobs = self._runs.setdefault(run, {})
        while len(self._runs) > _RUNS_KEPT:
            del self._runs[next(iter(self._runs))]
        return jobs.setdefault(job, _Job())


runs = Runs()
"""Of this process."""

_ids: dict[int, str] = {}


def process_id() -> str:
    """An id that no other process, and no fork of this one, has."""
    return _ids.setdefault(os.getpid(), secrets.token_hex(8))
