"""Python processes of Spark do not look at, or give back, what they need again for the next task.

PySpark's daemon collects garbage after all that a worker does (``gc.collect()``, pyspark/daemon.py):
after every task, plan and commit it looks at every object of every module. With a target's clients
loaded, some hundred thousand, that is 25 to 70 ms of CPU a time, four times an epoch of two tasks.

What a task has freed the next one needs again: the queue of a Kafka producer alone is 50 MB. glibc
gives it back to the system and gets it again page by page: 13,000 page faults and 50 ms of CPU for a
task of 250,000 records.

The environment variable ``ABS_TUNE_GC=0`` turns both off (docs/how-to/operations.md).
"""

from __future__ import annotations

import ctypes
import gc
import os
from functools import cache

SWITCH = "ABS_TUNE_GC"

KEPT_BYTES = 128 << 20
"""Freed memory that a process keeps at most instead of giving it back (``mallopt(3)``)."""
MAPPED_BYTES = 32 << 20
"""From this size on a block is mapped by itself, and given back when it is freed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SET_BY_USER = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}


@cache
def tune_gc() -> None:
    """Spare later collections what is there now; acts once in a process, and costs nothing after.

    Call it at the end of a piece of work, when all modules are loaded. What is freed by its reference
    count is freed as before. Only a cycle of what is there now, and becomes garbage later, is kept.
    """
    if os.environ.get(SWITCH) == "0":
        return
    gc.collect()
    gc.freeze()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """On glibc, where the environment does not say otherwise."""
    if os.name == "posix" and not _SET_BY_USER & os.environ.keys():
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            # Both: to set one fixes the other, and 128 KiB is little for a block to be mapped.
            mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
            mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
