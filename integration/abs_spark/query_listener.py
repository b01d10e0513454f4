"""``abs_spark.listener``: a ``StreamingQueryListener`` that also gets the events of the protocol."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.utils import is_remote

from abs_core.model import job_key
from abs_spark import observers
from abs_spark.end_watcher import end_watcher
from abs_spark.hooks import active_query, job_of, sentence_of
from abs_spark.observers import Told

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_meter = metrics.get_meter("abs_spark")
_batches = _meter.create_counter("abs.batches", "{batch}", "Micro-batches that Spark has ended")
_failures = _meter.create_counter("abs.failures", "{query}", "Queries that ended with an error")
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
    """See ``listener``."""

    def __init__(self, *observe: Told) -> None:
        observers.added.extend(observe)
        self._observe = observe
        self._jobs: dict[str, str] = {}
        self._ours: set[str] = set()
        self._known: set[str] = set()
        self._warned = False

    def close(self) -> None:
        """Tell the observers nothing more."""
        for observe in self._observe:
            if observe in observers.added:
                observers.added.remove(observe)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Keep what the query's end does not tell: its name, and whether it writes by this project."""
        if event.name:
            self._jobs[str(event.id)] = event.name
        if self._observe and not self._warned and is_remote():
            self._warned = True
            _log.warning(
                "abs_spark.listener: under Spark Connect the events of the protocol (Committed and "
                "others) occur in the server; this listener is told BatchDone and QueryEnded only. "
                "What to do: name the observer in ABS_OBSERVE, in the server's environment"
            )
        self._is_ours(str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        query = str(progress.id)
        if self._is_ours(query):
            seconds = progress.durationMs.get("triggerExecution", 0) / 1000
            rows = max(progress.numInputRows, 0)
            if query not in self._known and not is_remote():
                self._known.add(query)
                if (named := job_of(query)) is not None:
                    self._jobs[query] = job_key(named)
            job = self._job(query)
            if _first_to_hear(f"{progress.runId} {progress.batchId}"):
                _batches.add(1, {"job": job})
            self._tell(BatchDone(job, progress.batchId, rows, seconds, query))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing has been written."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        query = str(event.id)
        if not self._is_ours(query):
            return
        why = None
        if event.exception is not None:
            text = str(event.exception)
            why = sentence_of(RuntimeError(text)) or text.strip().partition("\n")[0]
            if _first_to_hear(f"{event.runId} failed"):
                _failures.add(1, {"job": self._job(query)})
        self._tell(QueryEnded(self._job(query), query, why))

    def _is_ours(self, query: str) -> bool:
        """Whether the query writes by this project; a client of Connect cannot know: then all do."""
        if is_remote():
            return True
        from py4j.protocol import Py4JError

        try:
            if query in end_watcher.functions or active_query(query) is not None:
                self._ours.add(query)
        except (Py4JError, OSError):
            return True  # rather one too many
        return query in self._ours

    def _job(self, query: str) -> str:
        function = end_watcher.functions.get(query)
        if function is not None and function.run is not None:
            self._jobs[query] = function.run.name.job
        return self._jobs.get(query, query)

    def _tell(self, event: object) -> None:
        for observer in self._observe:
            observers.tell_one(observer, event)


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
