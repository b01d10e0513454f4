"""Ends runs whose query has ended, where attempts that lost have left something in doubt.

A losing attempt (speculation) may pre-commit, or be killed in the middle, when its epoch is committed
already. The sweep after the next epoch finds it; after a query's last epoch there is none.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from abs_spark.run import KILL_SECONDS

if TYPE_CHECKING:
    from abs_spark.foreach.run import EpochRun

NOTICE_SECONDS = 1.0
"""For so long a query that was stopped may take to be seen as ended."""

_watches: dict[str, Watch] = {}
"""The newest of each job in this process."""


class Watch:
    """Waits in a thread until a query has ended, and then ends the job's run in it.

    Args:
        query: Java's.
        run: ends itself where something is in doubt.
    """

    def __init__(self, query: Any, run: EpochRun) -> None:
        self.run = run
        self._query = query
        self._ended = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="abs-ended", daemon=True)
        self._thread.start()

    def hurry(self, seconds: float) -> None:
        """If the query has ended, end its run now, and return when that is done."""
        self._hurry.set()
        if self._ended.wait(min(seconds, NOTICE_SECONDS)):
            self._thread.join(seconds)

    def _wait(self) -> None:
        if not _await_end(self._query):
            return
        self._ended.set()
        self._hurry.wait(KILL_SECONDS)  # Spark is still stopping those who have lost
        job = self.run.name.job
        if _watches.get(job) is self:  # else a later run sweeps
            self.run.end_leftovers()
            if _watches.get(job) is self:  # else one has begun meanwhile, and is watched
                del _watches[job]


def _await_end(query: Any) -> bool:
    """Wait for a query's end; False if that cannot be told, as when Java has ended."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with suppress(Py4JError, PySparkException):  # the query's own; PySpark translates it
            query.awaitTermination()
        return not query.isActive()
    except (Py4JError, OSError):
        return False


def watch(query: Any, run: EpochRun) -> None:
    """End this run when its query has ended; an earlier one of the job is not watched any more.

    Args:
        query: Java's; None: not known (Spark Connect).
    """
    known = _watches.get(run.name.job)
    if known is not None and known.run.name == run.name:
        known.run = run  # the function was made anew for a batch
    elif query is not None:
        _watches[run.name.job] = Watch(query, run)


def end_all(seconds: float) -> None:
    """Before the session or the program ends: do not wait any longer for those who have lost.

    Args:
        seconds: time limit for all together.
    """
    ends = time.monotonic() + seconds
    for each in list(_watches.values()):
        each.hurry(max(0.0, ends - time.monotonic()))
