"""How many rows Spark hands to Python at a time, by the size of the rows of the epoch before.

PySpark 4 ends an Arrow batch at 64 MiB, and to know when, it measures the whole batch after every row:
most of what the JVM does for a sink. At exactly ``UNMEASURED`` it leaves that out, and only the number
of rows bounds a batch. So once the rows' size is known, a number of rows is set that keeps the bound.

A task reads both settings for all Python functions of its job. So they are left alone if the query
has another one: its rows may be much larger than the sink's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
UNMEASURED = str(2**31 - 1)
MAX_BYTES = 64 << 20
"""Of a batch, as Spark's own default bounds it."""
MAX_ROWS = 1000
"""More are not faster; and if rows of 1 MB follow small ones, so many take 1 GB."""

_OTHERS = re.compile(r"ArrowEval|ArrowAgg|ArrowWindow|InPandas|InArrow|InPySpark")
"""Spark's operators that pass rows to a Python function as Arrow."""


class Measured:
    """Passes batches on, and keeps the mean bytes of a row in the batch where it was greatest."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.row_bytes = 0.0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if batch.num_rows:
                self.row_bytes = max(self.row_bytes, batch.nbytes / batch.num_rows)
            yield batch


def rows_of_a_batch(row_bytes: float) -> int:
    """So many rows of this size are at most ``MAX_BYTES``."""
    return max(1, min(MAX_ROWS, int(MAX_BYTES / max(row_bytes, 1))))


def has_other_functions(plan: Any) -> bool:
    """Whether a plan passes rows to a user's Python functions, in this epoch or in a later one.

    Args:
        plan: Java's QueryExecution.
    """
    from pyspark import SparkContext  # not there in a client of Spark Connect

    # The plan as it was written: Spark takes a function out whose stream has nothing new.
    jvm: Any = SparkContext._jvm
    function = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    if plan.logical().containsPattern(function):
        return True
    # And what is executed: a function of what is cached is only there.
    return _OTHERS.search(plan.executedPlan().toString()) is not None


def may_count_rows(query: Any, rows: Any) -> bool:
    """Whether nothing but our own sinks takes rows in this batch of a query.

    Args:
        query: Java's object of it; None: not known (Spark Connect), so it may be otherwise.
        rows: the DataFrame that the sinks take.
    """
    if query is None:
        return False
    from py4j.protocol import Py4JError

    try:
        plans = query.lastExecution(), rows._jdf.queryExecution()
        return not any(map(has_other_functions, plans))
    except Py4JError:
        return False


@contextmanager
def batches_by_rows(spark: Any, row_bytes: float) -> Iterator[None]:
    """Spark counts rows in place of bytes while this is open; the session is left as it was.

    Nothing changes in a session that sets one of the two itself, before the size is known (0), and on
    PySpark 3.5, which does not measure. An epoch whose rows are suddenly much larger than those of the
    epoch before takes more memory; after a restart its size is unknown, and Spark measures again.
    """
    if not row_bytes or not hasattr(type(spark.conf), "getAll") or _are_set(spark.conf):
        yield
        return
    spark.conf.set(ROWS, str(rows_of_a_batch(row_bytes)))
    spark.conf.set(BYTES, UNMEASURED)
    try:
        yield
    finally:
        spark.conf.unset(BYTES)
        spark.conf.unset(ROWS)


def _are_set(conf: Any) -> bool:
    """Whether one of the two settings is set in a classic session of PySpark 4.

    ``conf.getAll`` would fetch every setting by a call of its own: 150 calls into the JVM an epoch.
    """
    return any(conf._jconf.contains(key) for key in (BYTES, ROWS))
