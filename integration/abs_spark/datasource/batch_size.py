"""How many rows Spark hands to a format at a time, by the size of the rows of the epoch before.

What ``abs_spark.foreach.row_size`` does for ``abs_spark.epoch``. A format's own processes cannot set
anything in the query's session, so the driver's program does it, by what Spark itself counts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from abs_spark.foreach.row_size import BYTES, ROWS, UNMEASURED, rows_of_a_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

WORTH_ROWS = 10_000
"""Smaller epochs gain nothing, and are left as they are."""
MARGIN = 4
"""Spark counts the bytes of an epoch, not of each batch: rows of a batch may be so much larger."""

_log = logging.getLogger("abs_spark.start")


class BatchSizes(StreamingQueryListener):
    """Sets rows in place of bytes for queries of one session that write by a format ``abs-...``.

    A query is left alone if its session sets one of the two itself, and until an epoch has
    ``WORTH_ROWS``. An epoch whose rows are suddenly much larger than those of the epoch before takes
    more memory. After a restart Spark measures again until the first epoch has ended.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._sent: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        """By query: the rows of a batch that are set; 0: the user has set it."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        query = str(event.progress.id)
        known = self._rows.get(query)
        if known == 0 or not event.progress.sink.description.startswith("abs-"):
            return
        if known is None and event.progress.numInputRows < WORTH_ROWS:
            return
        from py4j.protocol import Py4JError

        try:
            self._look(query)
        except (Py4JError, AttributeError, TypeError, OSError) as error:  # the query has ended
            _log.debug("query %s: the size of its rows is not known: %s", query, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._sent.pop(str(event.id), None)
        self._rows.pop(str(event.id), None)

    def _look(self, query: str) -> None:
        uuid = self._spark._jvm.java.util.UUID.fromString(query)
        java = self._spark._jsparkSession.sharedState().activeStreamingQueries().get(uuid)
        if java is None:
            return
        counted = java.lastExecution().executedPlan().metrics()
        sent, rows = (
            int(counted.apply(name).value()) for name in ("pythonDataSent", "numOutputRows")
        )
        # Spark counts the bytes of all epochs of a run together, and the rows of each.
        before, self._sent[query] = self._sent.get(query, 0), sent
        if not rows or sent == before:
            return  # the next epoch has begun, and no task of it has ended
        size = (sent - before if sent > before else sent) / rows
        self._set(java.sparkSessionForStream().conf(), query, rows_of_a_batch(size * MARGIN), size)

    def _set(self, conf: Any, query: str, rows: int, size: float) -> None:
        known = self._rows.get(query)
        if known is None and not (
            conf.getOption(BYTES).isEmpty() and conf.getOption(ROWS).isEmpty()
        ):
            self._rows[query] = 0
            return
        if known == rows:
            return
        conf.set(ROWS, str(rows))
        conf.set(BYTES, UNMEASURED)
        self._rows[query] = rows
        _log.info(
            "query %s: rows have about %.0f bytes, so Spark hands %d at a time to Python from now on, "
            "and does not measure them; to keep its own way, set %s in the session",
            *(query, size, rows, BYTES),
        )


_sessions: list[SparkSession] = []


def size_batches(spark: SparkSession) -> None:
    """Do so for the queries that this session starts; can be repeated. Nothing under Spark Connect."""
    if hasattr(spark, "_jsparkSession") and spark not in _sessions:
        _sessions.append(spark)
        spark.streams.addListener(BatchSizes(spark))
