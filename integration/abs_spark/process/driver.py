"""The Spark driver of this process: its id, its signals, and how long it lets a task end."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

KILL_SECONDS = 2.5
"""Spark kills a cancelled task after 2 seconds (spark.python.task.killTimeout)."""

_FOLDERS = "SPARK_LOCAL_DIRS"
_OF_ITS_OWN = "blockmgr-"
"""Spark makes a folder of this name and a random id for each session's driver, and passes it on."""


def driver_id() -> str | None:
    """The driver's unique id, the same in all of its processes on this machine; None if unknown.

    Seen in PySpark 4.3; not documented. Tasks have the id of their executor.
    """
    folders = os.environ.get(_FOLDERS, "")
    if _OF_ITS_OWN not in folders:
        return None
    return hashlib.sha256(folders.encode()).hexdigest()[:16]


@contextmanager
def not_hung_up() -> Iterator[None]:
    """Context that ignores SIGHUP, which Spark's daemon sends when the session or its JVM ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
