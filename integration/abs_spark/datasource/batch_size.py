"""How many rows Spark hands to a format at a time, by the size of the rows of the epoch before.

What ``abs_spark.foreach.row_size`` does for ``abs_spark.epoch``. Only the driver's program can set
anything in the session of a query, which is a clone that belongs to the query alone; and only the
commit process knows how large its rows are. It tells the program through a pipe with a name, which it
finds in its environment: Spark gives it the one that the program had when it registered the formats.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abs_core.model import Share, Wrote
from abs_spark.foreach.row_size import (
    BYTES,
    ROWS,
    UNMEASURED,
    has_other_functions,
    rows_of_a_batch,
)
from abs_spark.hooks import active_query
from abs_spark.process.logs import show_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPE = "ABS_ROW_SIZE_PIPE"
"""Environment variable of a format's processes."""
MARGIN = 4
"""A task's mean is known, not the size of each batch: rows of one may be so much larger."""

_log = logging.getLogger("abs_spark.start")
_registering = threading.RLock()


def tell_row_size(query: str, run: str, shares: Iterable[Share]) -> None:
    """In the commit process: tell the program how large the rows of an epoch were. Raises nothing."""
    efforts = [each.effort for each in shares if isinstance(each, Wrote) and each.effort]
    amounts = [amount for effort in efforts for amount in effort.amounts]
    size = max((size / rows for _, rows, size in amounts if rows), default=0.0)
    place = os.environ.get(PIPE)
    if not size or place is None:
        return
    try:
        pipe = os.open(place, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, f"{query} {run} {size:.0f}\n".encode())
        finally:
            os.close(pipe)
    except OSError as error:  # the program has ended; or it is on another machine
        _log.debug("query %s: the size of its rows is not told: %s", query, error)


@contextmanager
def batches_by_rows(spark: SparkSession) -> Iterator[bool]:
    """Formats that are registered while this is open tell the size of their rows to this process.

    Yields whether they do: not under Spark Connect, whose client cannot reach a query's session.
    """
    context: Any = getattr(spark, "_sc", None)
    if getattr(context, "environment", None) is None or not hasattr(os, "mkfifo"):
        yield False
        return
    with _registering:
        # Another one, not changed: another thread may just be sending it with a function.
        given = context.environment
        context.environment = {**given, PIPE: _pipe(os.getpid())}
        try:
            yield True
        finally:
            context.environment = given


@cache
def _pipe(process: int) -> str:
    """The pipe of this process, and a thread that follows it."""
    folder = tempfile.mkdtemp(prefix="abs-sinks-")
    atexit.register(_remove, folder, process)
    place = str(Path(folder) / "row-sizes")
    os.mkfifo(place, 0o600)
    # To read and write: so it has no end where the last epoch's commit has closed it.
    pipe = os.open(place, os.O_RDWR)
    threading.Thread(target=_follow, args=(pipe,), name="abs-row-size", daemon=True).start()
    return place


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # not as a fork of it ends
        shutil.rmtree(folder, ignore_errors=True)


def _follow(pipe: int) -> None:
    sizes = BatchSizes()
    with open(pipe, encoding="ascii") as lines:
        for line in lines:
            query, run, size = line.split()
            sizes.set(query, run, float(size))


class BatchSizes:
    """Sets rows in place of bytes in the sessions of queries that write by a format ``abs-...``.

    A query is left alone if its session sets one of the two itself, or if rows go to other Python
    functions, too. An epoch whose rows are suddenly much larger than those of the epoch before takes
    more memory. After a restart Spark measures again until the first epoch has ended. If rows become
    much smaller, it measures again, too: sizes vary, and the next may be as large as before.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        """Rows of a batch, by the query's run; 0: Spark's own setting stays."""

    def set(self, query: str, run: str, size: float) -> None:
        """For the next epoch, by the size of the last one's rows; raises nothing."""
        rows, known = rows_of_a_batch(size * MARGIN), self._rows.get(run)
        # Rows that are somewhat smaller than before change nothing.
        if known is not None and (known == 0 or rows == known or known < rows < 2 * known):
            return
        from py4j.protocol import Py4JError

        try:
            self._set(query, run, rows, size)
        except (Py4JError, OSError, AttributeError, TypeError) as error:  # the query has ended
            _log.debug("query %s: its rows are still measured: %s", query, error)

    def _set(self, query: str, run: str, rows: int, size: float) -> None:
        java: Any = active_query(query)
        if java is None or java.runId().toString() != run:
            return
        plan = java.lastExecution()
        conf = plan.sparkSession().conf()
        first = run not in self._rows
        own = conf.getAll()
        if first and (own.contains(BYTES) or own.contains(ROWS) or has_other_functions(plan)):
            self._rows[run] = 0
            return
        if not first and rows > self._rows[run]:
            conf.unset(BYTES)
            conf.unset(ROWS)
            self._rows[run] = 0
            return
        conf.set(ROWS, str(rows))
        conf.set(BYTES, UNMEASURED)
        self._rows[run] = rows
        if first:
            show_logs()
            _log.info(
                "query %s: rows have about %.0f bytes: from now on Spark hands %d at a time to Python, "
                "and does not measure them; to keep its own way, set %s in the session",
                *(query, size, rows, BYTES),
            )
