"""Reads the query, run and micro-batch of a task from its local properties.

Spark does not pass them to a Python writer's ``write()`` and does not document these properties. Seen
in PySpark 4.1.4, 4.2.1 and 4.3.0, classic and Connect. A version without them is refused, as
exactly-once needs them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyspark
from pyspark import TaskContext

from abs_core.errors import ConfigError

SUPPORTED = "4.1, 4.2 and 4.3"

QUERY = "sql.streaming.queryId"
RUN = "spark.jobGroup.id"
EPOCH = "streaming.sql.batchId"
"""Local properties of a streaming query's threads and tasks."""


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One task of one micro-batch.

    Args:
        query: the query id; it lives in the checkpoint.
        run: Spark's id of this start of the query.
        epoch: the batch id.
        partition: the task's partition.
    """

    query: str
    run: str
    epoch: int
    partition: int


def stream_task() -> StreamTask:
    """The task that this thread runs.

    Raises:
        ConfigError: there is none, or this Spark does not set the properties.
    """
    context = _context()
    found = {name: context.getLocalProperty(name) for name in (QUERY, RUN, EPOCH)}
    missing = [name for name, value in found.items() if not value]
    epoch = found[EPOCH] or ""
    if missing or not epoch.isdecimal():
        raise ConfigError(
            f"Spark {pyspark.__version__} does not tell a sink's task what it works for: "
            f"{', '.join(missing) or EPOCH} is missing from the task's properties.",
            remedy=f"use Spark {SUPPORTED}.",
        )
    return StreamTask(str(found[QUERY]), str(found[RUN]), int(epoch), context.partitionId())


def partition() -> int:
    """The partition of the task that this thread runs.

    Raises:
        ConfigError: there is no task.
    """
    return _context().partitionId()


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigError(
            "A sink's write() was called outside of a Spark task.",
            remedy="use it through df.write or df.writeStream.",
        )
    return context
