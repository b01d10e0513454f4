"""Stops the project's queries before their session or driver ends.

Spark does not stop them: their tasks fail, and the processes that could commit or abort open handles
are gone. A stopped query commits or aborts its handles itself. What losing attempts have left of a
query that had ended before is ended, too (``abs_spark.epoch`` only).
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - ends its pools when the program ends: see below
import logging
import os
import sys
import threading
import time
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any

from abs_spark.foreach.driven import driven
from abs_spark.lastline import show_last

if TYPE_CHECKING:
    from pyspark import SparkContext

_SECONDS = 30.0
"""Time limit for all queries together; a run ends itself in about 15 s if a server does not answer."""

_QUERY = "sql.streaming.queryId"

_log = logging.getLogger("abs_spark.recovery")


def install_hooks() -> None:
    """Show a sink's error in the last line, and stop queries before their session; repeatable."""
    show_last()
    stop_queries_first()


@cache
def stop_queries_first() -> None:
    """Install hooks that stop the queries at program exit and before ``spark.stop()``; repeatable."""
    # The first is called when the main thread has ended, before pools of threads are shut. Functions of
    # atexit are called when all threads have ended; then no pool takes work any more, and from Python
    # 3.12 on no thread is started.
    threading._register_atexit(partial(_main_thread_has_ended, os.getpid()))  # type: ignore[attr-defined]
    atexit.register(_stop_all, os.getpid())
    try:
        from pyspark import SparkContext
    except ImportError:  # a client of Spark Connect, or no Spark at all
        return
    stop = SparkContext.stop

    @wraps(stop)
    def stop_in_order(context: SparkContext) -> None:
        stop_queries(context)
        stop(context)
        driven.end_all(_SECONDS)

    SparkContext.stop = stop_in_order  # type: ignore[method-assign, assignment]


def stop_queries(context: SparkContext) -> None:
    """Stop the queries that write by this project, in all sessions of the context.

    Returns after a time limit even if a query does not end. Raises nothing.
    """
    from py4j.protocol import Py4JError

    try:
        inside = context.getLocalProperty(_QUERY)  # one that calls from a batch cannot wait for it
        found = {name: query for name, query in _ours().items() if name != inside}
    except (Py4JError, OSError, AttributeError, TypeError) as error:
        _log.warning("the queries of this session cannot be stopped before it ends: %s", error)
        return
    ends = time.monotonic() + _SECONDS
    stopping = [(name, _begin_to_stop(name, query)) for name, query in found.items()]
    for name, thread in stopping:
        if thread is None:
            continue
        thread.join(max(0.0, ends - time.monotonic()))
        if thread.is_alive():
            _log.warning(
                "the query %s was not stopped within %.0f s: what it has open, its next start ends",
                *(name, _SECONDS),
            )


def _main_thread_has_ended(process: int) -> None:
    """Stop the queries at the main thread's end, unless other threads run, which may wait for them."""
    others = set(threading.enumerate()) - {threading.current_thread(), threading.main_thread()}
    if all(thread.daemon for thread in others):
        _stop_all(process)


def _stop_all(process: int) -> None:
    """Stop the queries of this process; do nothing in a forked child."""
    if os.getpid() != process:
        return
    spark = sys.modules.get("pyspark")
    context = None if spark is None else spark.SparkContext._active_spark_context
    if context is not None:
        stop_queries(context)
    driven.end_all(_SECONDS)


def _ours() -> dict[str, Any]:
    """The active queries, as the JVM lists them, that write by this project."""
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is None:
        return {}
    active = session._jsparkSession.sharedState().activeStreamingQueries()
    found = {}
    for uuid in active.keySet():
        query = active.get(uuid)
        if query is None:
            continue  # it has ended meanwhile
        name = str(uuid.toString())
        try:
            ours = name in driven.functions or query.sink().name().startswith("abs-")
        except Py4JJavaError:
            ours = False  # another foreachBatch: it has no name
        if ours:
            found[name] = query
    return found


def _begin_to_stop(name: str, query: Any) -> threading.Thread | None:
    stop = threading.Thread(target=_stop, args=(name, query), name="abs-stop", daemon=True)
    try:
        stop.start()
    except RuntimeError:  # no thread is started any more
        _stop(name, query)
        return None
    return stop


def _stop(name: str, query: Any) -> None:
    from py4j.protocol import Py4JError

    try:
        query.stop()
    except (Py4JError, OSError) as error:
        _log.warning("the query %s cannot be stopped before its session ends: %s", name, error)
