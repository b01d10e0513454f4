"""Adds the executor's host to errors of tasks, and checks that an executor reaches the target.

Credentials and routes can differ between machines. The check runs before a task's first row, once for
each sink that its process keeps.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from abs_core.contracts import Sink
from abs_core.errors import AbsError, TargetError, UnavailableError
from abs_core.patience import Patience

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
