"""How many rows Spark hands to a format at a time, by the size of the rows of the epoch before.

What ``abs_spark.foreach.row_size`` does for ``abs_spark.epoch``. Only the driver's program can set
anything in the session of a query, which is a clone that belongs to the query alone; and only the
commit process knows how large its rows are, so it tells the program.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from typing import Any

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
from abs_spark.process.program import hear, tell_program

SUBJECT = "row size"
MARGIN = 4
"""A task's mean is known, not the size of each batch: rows of one may be so much larger."""

_log = logging.getLogger("abs_spark.start")


def tell_row_size(query: str, run: str, shares: Iterable[Share]) -> None:
    """In the commit process: tell the program how large the rows of an epoch were. Raises nothing."""
    efforts = [share.effort for share in shares if isinstance(share, Wrote) and share.effort]
    amounts = [amount for effort in efforts for amount in effort.amounts]
    size = max((size / rows for _, rows, size in amounts if rows), default=0.0)
    if size:
        tell_program(SUBJECT, [query, run, size])


@cache
def hear_row_sizes() -> None:
    """In the program: set the sessions of queries by what their formats tell."""
    sizes = BatchSizes()

    def set_size(message: Any) -> None:
        query, run, size = message
        sizes.set(query, run, size)

    hear(SUBJECT, set_size)


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
        rows, current = rows_of_a_batch(size * MARGIN), self._rows.get(run)
        # Rows that are somewhat smaller than before change nothing.
        if current is not None and (
            current == 0 or rows == current or current < rows < 2 * current
        ):
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
                "query %s is faster from now on: Spark hands Python %d rows of about %.0f bytes at a "
                "time, and measures none; set %s in the session to keep Spark's own way",
                query,
                rows,
                size,
                BYTES,
            )
