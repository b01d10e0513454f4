"""Brings an epoch to its end on a broker that fails meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from abs_core.errors import AbsError
from abs_testing.engine import Run
from abs_testing.harness import Row


def through(start: Callable[[], Run], run: Run, epoch: int, parts: Sequence[Sequence[Row]]) -> Run:
    """Bring the epoch to its end, as an engine does that starts its query again; the last run."""
    for _restart in range(10):
        try:
            run.commit(epoch, run.tasks(epoch, *parts))
        except AbsError as error:
            print(f"epoch {epoch}: {error}")
            run = start()
        else:
            return run
    raise AssertionError(f"ten restarts did not bring epoch {epoch} to its end")
