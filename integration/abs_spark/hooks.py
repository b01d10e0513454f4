"""Hooks at a program's end: queries are stopped first, and an error is shown in the last line.

Spark does not stop queries before their session or driver ends: their tasks fail, and the processes
that could commit or abort open handles are gone. A stopped query commits or aborts its handles itself.
What losing attempts have left of a query that had ended before is ended, too (``abs_spark.epoch``
only).

Spark prints a Python sink's error in the middle of a traceback of up to a hundred lines, so the error's
sentence and remedy are repeated as the last line.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - ends its pools when the program ends: see below
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache, partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any

from abs_spark.end_watcher import end_watcher

if TYPE_CHECKING:
    from pyspark import SparkContext


_OURS = re.compile(
    r"abs_core\.errors\.(\w+): ("
    r"(?:(?!\n\n|\n\s*at |\n\s*File |\nTraceback|\n===|abs_core\.errors\.)[\s\S])*?What to do: .*|.+)"
)
"""An error's name and text: through the line of its remedy, if no traceback comes before that."""
_NEXT_LINE = re.compile(r"(:?)\s*\n\s*(?:- )?")
_NO_UPDATE = (
    "OptionError: {}: Spark gives a Python sink no outputMode update. [ABS-OPTION] What to do: give "
    "abs_spark.epoch to foreachBatch, with a sink of write=upsert and key, which keeps running "
    "aggregates current; or use outputMode append with a watermark."
)
_NO_TIME = (
    "{}: Spark has the type TIME switched off. [ABS-CONFIG] What to do: set "
    "spark.sql.timeType.enabled to true in the session, or cast the column."
)
_TWO_DRIVERS = (
    "FencedError: {}: another driver runs this query on the same checkpoint, and has taken over. "
    "[ABS-FENCED] What to do: nothing, if you restarted the job; otherwise stop one of the two drivers."
)
_BY_SPARK = (
    (re.compile(r"\b(CONCURRENT_STREAM_LOG_UPDATE)\b"), _TWO_DRIVERS),
    (re.compile(r"(abs-\w+) does not support Update mode"), _NO_UPDATE),
    (re.compile(r"\[(UNSUPPORTED_TIME_TYPE)\]"), _NO_TIME),
)
"""Errors by which Spark itself ends or refuses a query, with our sentence for each."""


def sentence_for_spark(text: str) -> str | None:
    """Our sentence for an error by which Spark itself ends or refuses a query; None: not known."""
    for pattern, sentence in _BY_SPARK:
        if refused := pattern.search(text):
            return sentence.format(refused[1])
    return None


def sentence_of(error: BaseException) -> str | None:
    """Name and sentence of the project's error in this exception's text or in one of its causes.

    Some queries are ended or refused by Spark itself; those cases have sentences here.
    """
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if matches := _OURS.findall(str(at)):
            # The last one: before it stand those that it was made from.
            name, sentence = matches[-1]
            one_line = _NEXT_LINE.sub(lambda end: f"{end[1] or ';'} ", sentence.strip())
            return f"{name}: {one_line}"
        if by_spark := sentence_for_spark(str(at)):
            return by_spark
        at = at.__cause__ or at.__context__
    return None


@cache
def show_last() -> None:
    """Install a ``sys.excepthook`` that prints the line after the previous hook; can be repeated."""
    before = sys.excepthook

    def shown(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, traceback)
        if kind.__module__.startswith("pyspark.") and (sentence := sentence_of(error)):
            print(f"\nabs-sinks: {sentence}", file=sys.stderr)

    sys.excepthook = shown


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
        end_watcher.end_all(_SECONDS)

    SparkContext.stop = stop_in_order  # type: ignore[method-assign, assignment]


def stop_queries(context: SparkContext) -> None:
    """Stop the queries that write by this project, in all sessions of the context.

    Returns after a time limit even if a query does not end. Raises nothing.
    """
    from py4j.protocol import Py4JError

    try:
        inside = context.getLocalProperty(_QUERY)  # one that calls from a batch cannot wait for it
        queries = {name: query for name, query in active_queries().items() if name != inside}
    except (Py4JError, OSError, AttributeError, TypeError) as error:
        _log.warning("the queries of this session cannot be stopped before it ends: %s", error)
        return
    ends = time.monotonic() + _SECONDS
    stopping = [(name, _begin_to_stop(name, query)) for name, query in queries.items()]
    for name, thread in stopping:
        if thread is None:
            continue
        thread.join(max(0.0, ends - time.monotonic()))
        if thread.is_alive():
            _log.warning(
                "the query %s was not stopped within %.0f s: what it has open, its next start ends",
                name,
                _SECONDS,
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
    end_watcher.end_all(_SECONDS)


def active_query(name: str) -> Any:
    """Java's object of an active query that writes by this project; None if there is none.

    Raises:
        Py4JError, OSError: the JVM is gone.
    """
    return active_queries().get(name)


def active_queries() -> dict[str, Any]:
    """Java's objects of the active queries that write by this project, by their ids.

    Raises:
        Py4JError, OSError: the JVM is gone.
    """
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is None:
        return {}
    active = session._jsparkSession.sharedState().activeStreamingQueries()
    queries = {}
    for uuid in active.keySet():
        query = active.get(uuid)
        if query is None:
            continue  # it has ended meanwhile
        name = str(uuid.toString())
        if name in end_watcher.functions or is_format(query):
            queries[name] = query
    return queries


def is_format(query: Any) -> bool:
    """Whether a query, as Java has it, writes by a format of this project."""
    from py4j.protocol import Py4JJavaError

    try:
        return bool(query.sink().name().startswith("abs-"))
    except Py4JJavaError:  # a foreachBatch: it has no name
        return False


def options_of(options: Any) -> Iterator[tuple[str, str]]:
    """Names and values of a map of options, as Java has it; without those that are None."""
    pairs = options.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        if pair._2() is not None:
            yield str(pair._1()), str(pair._2())


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
