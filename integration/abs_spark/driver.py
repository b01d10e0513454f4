"""The driver that a process of Spark's planner or of its commits belongs to."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_FOLDERS = "SPARK_LOCAL_DIRS"
_OF_ITS_OWN = "blockmgr-"
"""Spark gives the driver of each session a folder of this name and a random id, and tells it these."""


def driver_id() -> str | None:
    """An id that no other driver has, the same in all of its processes here; None where none is told.

    Seen in PySpark 4.3; nowhere documented. Tasks have another one, of their executor.
    """
    folders = os.environ.get(_FOLDERS, "")
    if _OF_ITS_OWN not in folders:
        return None
    return hashlib.sha256(folders.encode()).hexdigest()[:16]


@contextmanager
def not_hung_up() -> Iterator[None]:
    """What is within goes on to its end where Spark's session, or its JVM, ends meanwhile.

    Spark's daemon then sends SIGHUP to the processes that it has forked.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
