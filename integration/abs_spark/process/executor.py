"""A task on its executor: what it works for, whether it reaches the target, and whose errors it raises.

Spark does not pass query, run and micro-batch to a Python writer's ``write()``: they are read from the
task's local properties, which Spark does not document. Seen in PySpark 4.1.4, 4.2.1 and 4.3.0, classic
and Connect. A version without them is refused, as exactly-once needs them.

Credentials and routes can differ between machines: so an executor checks that it reaches the target
before a task's first row, once for each sink that its process keeps, and errors name its host.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyspark
from pyspark import TaskContext

from abs_core.contracts import Sink
from abs_core.errors import AbsError, ConfigError, TargetError, UnavailableError
from abs_core.patience import Patience

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
    properties = {name: context.getLocalProperty(name) for name in (QUERY, RUN, EPOCH)}
    missing = [name for name, value in properties.items() if not value]
    epoch = properties[EPOCH] or ""
    if missing or not epoch.isdecimal():
        raise ConfigError(
            f"Spark {pyspark.__version__} does not tell a sink's task what it works for: "
            f"{', '.join(missing) or EPOCH} is missing from the task's properties.",
            remedy=f"use Spark {SUPPORTED}.",
        )
    return StreamTask(
        str(properties[QUERY]), str(properties[RUN]), int(epoch), context.partitionId()
    )


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


_ONE_ATTEMPT = (
    "If Spark does not try the task again: the master local[n] gives a task one attempt, local[n,4] "
    "gives it four."
)


@contextmanager
def on_executor() -> Iterator[None]:
    """Context of a task's work: errors name the executor's host.

    The first attempt's error of a server that is away says why it may have been the only attempt.
    """
    try:
        yield
    except AbsError as error:
        context = TaskContext.get()
        if isinstance(error, UnavailableError) and context and not context.attemptNumber():
            error.remedy = f"{error.remedy} {_ONE_ATTEMPT}".strip()
        error.at(f"on executor {socket.gethostname()}")
        raise


@contextmanager
def reaching() -> Iterator[None]:
    """Context of a task's first request to its target: errors say that the executor failed.

    The driver has reached the same target before, so the machines differ or the target is down.
    """
    try:
        yield
    except TargetError as error:
        error.what = f"This executor cannot reach its target, and has read no row: {error.what}"
        error.remedy = (
            f"{error.remedy} If the driver can reach it: give every executor the credentials and the "
            "network path that the driver has (each machine has its own environment variables, files "
            "and roles)."
        ).strip()
        raise


def check_reached(sink: Sink, patience: Patience) -> None:
    """Check that this process reaches the sink's target, before its first row.

    Raises:
        TargetError: the target does not answer within ``patience``, or it refuses.
    """
    with reaching():
        patience.retry(sink.reach)
