"""A process of PySpark that has done its first work is settled: what it has loaded stays.

PySpark's daemon collects garbage after all that a worker does (``gc.collect()``, pyspark/daemon.py):
after every task, plan and commit it looks at every object of every module. With a target's clients
loaded, some hundred thousand, that is 25 to 70 ms of CPU a time, four times an epoch of two tasks.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Spare later collections what is there now; acts once in a process, and costs nothing after.

    Call it at the end of a piece of work, when all modules are loaded. What is freed by its reference
    count is freed as before. Only a cycle of what is there now, and becomes garbage later, is kept.
    """
    gc.collect()
    gc.freeze()
