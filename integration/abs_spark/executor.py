"""Errors of tasks say on which machine they happened: credentials and routes differ there.

A task looks whether it gets to its target before it takes a row, so that an epoch's work is not done
for nothing: once for each sink that its process keeps.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from abs_core.contracts import Sink, reach
from abs_core.errors import AbsError, TargetError
from abs_core.patience import Patience


@contextmanager
def on_executor() -> Iterator[None]:
    """Around a task's work: its errors name the executor's host."""
    try:
        yield
    except AbsError as error:
        error.at(f"on executor {socket.gethostname()}")
        raise


@contextmanager
def reaching() -> Iterator[None]:
    """Around a task's first request to its target: an error says that an executor met it.

    The driver has asked the same target before: so the machines differ, or it is down.
    """
    try:
        yield
    except TargetError as error:
        error.what = f"This executor does not get to its target, and has taken no row: {error.what}"
        error.remedy = f"{error.remedy} {_ALIKE}".strip()
        raise


_ALIKE = (
    "If the driver gets there: give every executor the credentials and the network path that the "
    "driver has (environment variables, files and roles are those of each machine)."
)


def check_reached(sink: Sink, patience: Patience) -> None:
    """Before the first row that this process takes for a sink.

    Raises:
        TargetError: the target does not answer for as long as ``patience`` says, or it refuses.
    """
    with reaching():
        patience.retry(lambda: reach(sink))
