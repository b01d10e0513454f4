"""Tunes garbage collection and memory allocation of Spark's Python processes.

PySpark's daemon calls ``gc.collect()`` (pyspark/daemon.py) after every task, plan and commit. With a
target's clients loaded (some hundred thousand objects) that takes 25 to 70 ms of CPU, four times in an
epoch of two tasks. ``gc.freeze()`` excludes these objects.

glibc returns freed memory to the system, although the next task needs it (a Kafka producer's queue
alone is 50 MB): 13,000 page faults and 50 ms of CPU for a task of 250,000 records. ``mallopt`` changes
this.

The environment variable ``ABS_TUNE_GC=0`` turns both off (docs/how-to/watching.md).
"""

from __future__ import annotations

import ctypes
import gc
import os
from functools import cache

SWITCH = "ABS_TUNE_GC"

KEPT_BYTES = 128 << 20
"""Most freed memory that a process keeps (``mallopt(3)``)."""
MAPPED_BYTES = 32 << 20
"""Blocks from this size on are mapped separately, and returned to the system when freed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SET_BY_USER = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}


@cache
def tune_gc() -> None:
    """Exclude all present objects from later collections; acts once in a process.

    Call it when all modules are loaded. Only cycles among the present objects are never freed.
    """
    if os.environ.get(SWITCH) == "0":
        return
    # Not collected before: that is 30 to 60 ms of CPU in the way of a run's first epoch, for the few
    # objects that the imports have left.
    gc.freeze()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Set the limits of glibc, unless the environment sets them."""
    if os.name == "posix" and not _SET_BY_USER & os.environ.keys():
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            # Both: to set one fixes the other, and 128 KiB is little for a block to be mapped.
            mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
            mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
