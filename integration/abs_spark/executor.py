"""Errors of tasks say on which machine they happened: credentials and routes differ there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from abs_core.errors import AbsError


@contextmanager
def on_executor() -> Iterator[None]:
    """Around a task's work: its errors name the executor's host."""
    try:
        yield
    except AbsError as error:
        error.at(f"on executor {socket.gethostname()}")
        raise
