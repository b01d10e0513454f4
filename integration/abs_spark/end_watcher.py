"""What this process drives by ``abs_spark.epoch``: the functions, and the runs of ended queries.

A run whose query has ended is ended where attempts that lost have left something in doubt. A losing
attempt (speculation) may pre-commit, or be killed in the middle, when its epoch is committed
already. The sweep after the next epoch finds it; after a query's last epoch there is none.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakValueDictionary

from abs_spark.names import RunName
from abs_spark.process.driver import KILL_SECONDS

NOTICE_SECONDS = 1.0
"""For so long a query that was stopped may take to be seen as ended."""


class Run(Protocol):
    """A job's run, as far as its end is watched."""

    @property
    def name(self) -> RunName: ...

    def end_leftovers(self) -> None:
        """End it if something of its job is in doubt; call when its query has ended."""
        ...


class Function(Protocol):
    """What writes a query's batches."""

    @property
    def run(self) -> Run | None: ...


class EndWatcher:
    """What this process drives.

    It ends a run once its query has ended: the newest of each query and job. Two queries may give
    their jobs one name, where their registers are in different places.
    """

    def __init__(self) -> None:
        self.functions: WeakValueDictionary[str, Function] = WeakValueDictionary()
        """The function that writes a query's batches, by the query's id."""
        self._newest: dict[tuple[str, str], Watch] = {}

    def watch(self, query: Any, run: Run) -> None:
        """End this run when its query has ended; an earlier one is not watched any more.

        Args:
            query: Java's; None: not known (Spark Connect).
        """
        watch = self._newest.get(_key(run))
        if watch is not None and watch.run.name == run.name:
            watch.run = run  # the function was made anew for a batch
        elif query is not None:
            self._newest[_key(run)] = Watch(query, run, self)

    def end_all(self, seconds: float) -> None:
        """Call before the session ends: end all runs now, without waiting for losing task attempts.

        Args:
            seconds: time limit for all together.
        """
        ends = time.monotonic() + seconds
        for watch in list(self._newest.values()):
            watch.hurry(max(0.0, ends - time.monotonic()))

    def has(self, watch: Watch) -> bool:
        """Whether no later run of this query and job is watched."""
        return self._newest.get(_key(watch.run)) is watch

    def forget(self, watch: Watch) -> None:
        """Watch this run no more; a later one stays watched."""
        if self.has(watch):
            del self._newest[_key(watch.run)]


def _key(run: Run) -> tuple[str, str]:
    return run.name.lineage, run.name.job


class Watch:
    """Waits in a thread until a query has ended, and then ends the job's run in it.

    Args:
        query: Java's.
        run: ends itself where something is in doubt.
    """

    def __init__(self, query: Any, run: Run, among: EndWatcher) -> None:
        self.run = run
        self._among = among
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
        if self._among.has(self):  # else a later run sweeps
            self.run.end_leftovers()
            self._among.forget(self)


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


end_watcher = EndWatcher()
"""The one of this process."""
