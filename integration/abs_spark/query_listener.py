"""``abs_spark.listener``: a ``StreamingQueryListener`` that also gets the events of the protocol."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.utils import is_remote

from abs_core.model import job_key
from abs_spark import observers
from abs_spark.foreach.process import runs
from abs_spark.hooks import active_queries, is_format, options_of, sentence_of
from abs_spark.observers import Told
from abs_spark.progress import count_batch, count_failure

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger("abs_spark.start")


@dataclass(frozen=True, slots=True)
class BatchDone:
    """Spark has ended a micro-batch of a query that writes by this project.

    Args:
        job: its job; the query's name or id where this process does not know it (Spark Connect).
        rows: that Spark read.
        seconds: of the whole trigger, Spark's planning and checkpoint with it.
    """

    job: str
    epoch: int
    rows: int
    seconds: float
    query: str


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A query has ended.

    Args:
        job: as in ``BatchDone``.
        why: the error's sentence and remedy; None if it was stopped, or had no more input.
    """

    job: str
    query: str
    why: str | None


_heard: deque[str] = deque(maxlen=1000)
"""What one of this process's listeners has counted: each of them hears of the same batch."""


def _first_to_hear(news: str) -> bool:
    """Whether no listener of this process has counted this yet; Spark calls them in turn."""
    if news in _heard:
        return False
    _heard.append(news)
    return True


class Listener(StreamingQueryListener):
    """See ``listener``.

    Spark's events reach Python some time after they happened, when their query may have ended. So whose
    they are is not asked of the active queries: a format's query is kept from its start until its end
    has been told, and the runs of functions are known to the process.
    """

    def __init__(self, *observe: Told) -> None:
        observers.added.extend(observe)
        self._observe = observe
        self._names: dict[str, str] = {}
        self._warned = False
        self._formats: dict[str, Any] = {}
        """Java's objects of the queries that write by a format, by the ids of their runs."""
        self._keep_active()

    def close(self) -> None:
        """Tell the observers nothing more."""
        for observe in self._observe:
            if observe in observers.added:
                observers.added.remove(observe)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Keep what later events do not tell. Spark calls this before the query's first batch."""
        if event.name:
            self._names[str(event.id)] = event.name
        if self._observe and not self._warned and is_remote():
            self._warned = True
            _log.warning(
                "abs_spark.listener: under Spark Connect the events of the protocol (Committed and "
                "others) occur in the server; this listener is told BatchDone and QueryEnded only. "
                "What to do: name the observer in ABS_OBSERVE, in the server's environment"
            )
        self._keep_active()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        query, run = str(progress.id), str(progress.runId)
        seconds = progress.durationMs.get("triggerExecution", 0) / 1000
        rows = max(progress.numInputRows, 0)
        for job in self._jobs(query, run):
            if _first_to_hear(f"{run} {progress.batchId} {job}"):
                count_batch(job)
            self._tell(BatchDone(job, progress.batchId, rows, seconds, query))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing has been written."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        query, run = str(event.id), str(event.runId)
        why = None
        if event.exception is not None:
            text = str(event.exception)
            why = sentence_of(RuntimeError(text)) or text.strip().partition("\n")[0]
        for job in self._jobs(query, run):
            if why is not None and _first_to_hear(f"{run} failed {job}"):
                count_failure(job)
            self._tell(QueryEnded(job, query, why))
        self._formats.pop(run, None)

    def _keep_active(self) -> None:
        from py4j.protocol import Py4JError

        with suppress(Py4JError, OSError):  # the JVM is gone: it tells nothing more
            for java in active_queries().values():
                if is_format(java):
                    self._formats.setdefault(str(java.runId().toString()), java)

    def _jobs(self, query: str, run: str) -> list[str]:
        """The jobs that write in a run; none: not by this project.

        A client of Connect knows none: there each query is one, by its name.
        """
        if is_remote():
            return [self._names.get(query, query)]
        if run not in self._formats:
            self._keep_active()  # it has begun between this listener's making and its adding
        if (java := self._formats.get(run)) is not None:
            return [job_key(_option(java, "job") or query)]
        return sorted(runs.jobs(query, run))

    def _tell(self, event: object) -> None:
        for observer in self._observe:
            observers.tell_one(observer, event)


def _option(java: Any, name: str) -> str | None:
    """An option of a format's query, which may have ended; None if it has none."""
    from py4j.protocol import Py4JError

    try:
        options = options_of(java.logicalPlan().writeOptions())
        # Spark keeps the user's letters.
        return next((value for key, value in options if key.lower() == name), None)
    except (Py4JError, OSError):  # it has ended before it had a plan
        return None


def listener(*observe: Told) -> Any:
    """A ``StreamingQueryListener`` for ``spark.streams.addListener``.

    Each observer is called with every event of the queries that write by this project
    (``abs_core.events``: ``Committed`` has the figures of an epoch), and with Spark's news of them:
    ``BatchDone`` and ``QueryEnded``. The metrics ``abs.batches`` and ``abs.failures`` count
    micro-batches, and queries that end with an error, once for all listeners of a process.

    A format's events occur in processes of Spark's, which send them here where ``abs_spark.register``
    has registered the format. Under Spark Connect all events occur in the server, so the client's
    listener gets Spark's news only, of all queries of its session, and a warning in the log says so:
    see ``ABS_OBSERVE`` in docs/how-to/watching.md.

    Args:
        observe: called with an event, by ``abs_spark.epoch``'s thread or by one of the program's own;
            one that raises is logged, and the query goes on.
    """
    return Listener(*observe)
