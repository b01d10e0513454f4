"""The memory of this process about the runs of queries that it drives, over all functions.

A user's function may call ours several times, make it anew for each batch, or catch an error. What was
written, or failed, in a run is remembered all the same.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, replace

from abs_core.errors import AbsError, ProtocolError
from abs_spark.process.lru_cache import LruCache

_EPOCHS_KEPT = 2


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of one job in one run.

    Args:
        finished: its newest epochs that this run has finished.
        failed: the first epoch that failed, and why; the run writes nothing more.
    """

    finished: tuple[int, ...] = ()
    failed: tuple[int, str] | None = None

    def and_finished(self, epoch: int) -> Known:
        """The same, with this epoch finished."""
        return replace(self, finished=(*self.finished, epoch)[-_EPOCHS_KEPT:])

    def and_failed(self, epoch: int, error: BaseException) -> Known:
        """The same, with this epoch failed; the first failure is kept."""
        if self.failed is not None:
            return self
        why = error.what if isinstance(error, AbsError) else f"{type(error).__name__}: {error}"
        return replace(self, failed=(epoch, why[:500]))

    def check(self, job: str, epoch: int) -> None:
        """Refuse whatever comes after a batch that failed.

        Raises:
            ProtocolError: an epoch of the job has failed in this run.
        """
        if self.failed is None:
            return
        failed, why = self.failed
        raise ProtocolError(
            f"Batch {failed} failed in this run, so this run writes nothing more. The failure "
            f"was: {why}",
            job=job,
            epoch=epoch,
            remedy="do not catch the error in the function that is given to foreachBatch: the "
            f"query then ends, and writes batch {failed} again when it is restarted.",
        )

    def check_not_written(self, job: str, epoch: int) -> None:
        """Refuse to skip an epoch that this run has finished: Spark replays no batch within a run.

        Raises:
            ProtocolError: it is a second call for the epoch.
        """
        if epoch not in self.finished:
            return
        raise ProtocolError(
            f"This run has already written batch {epoch} for this job: the rows of a second call "
            "would be lost.",
            job=job,
            epoch=epoch,
            remedy="give the second call another job: then this batch's rows are written, too. "
            "Or, from the next batch on, write all rows of a batch in one call, to several sinks by "
            f"abs_spark.epoch, and write the rows of the second call in batch {epoch} yourself.",
        )


class Runs:
    """The newest runs of each query of this process, by Spark's ids of query and run, and by job.

    No other query evicts a run: what is forgotten of a running query would be lost in silence.
    """

    def __init__(self) -> None:
        self._queries: dict[str, LruCache[str, dict[str, Known]]] = {}

    def jobs(self, query: str, run: str) -> frozenset[str]:
        """The jobs that have begun in the run."""
        return frozenset(self._jobs(query, run))

    def of(self, query: str, run: str, job: str) -> Known:
        """What is remembered of a job in a run; nothing if it has not begun."""
        return self._jobs(query, run).get(job, Known())

    def note(self, query: str, run: str, job: str, history: Known) -> None:
        """Remember this of the job, at least that it has begun."""
        newest = self._queries.setdefault(query, LruCache())
        newest.put(run, {**self._jobs(query, run), job: history})

    def _jobs(self, query: str, run: str) -> dict[str, Known]:
        newest = self._queries.get(query)
        return (None if newest is None else newest.get(run)) or {}


runs = Runs()
"""The runs of this process."""

_ids: dict[int, str] = {}


def process_id() -> str:
    """An id that no other process, and no fork of this one, has."""
    return _ids.setdefault(os.getpid(), secrets.token_hex(8))
