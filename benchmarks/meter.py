"""Wall and CPU seconds of a stretch of work, over all processes that do it.

Counted: this process, every process below it (Spark's JVM and its Python workers, writer processes)
and the PostgreSQL server with its backends. A process that ended meanwhile is counted through the
parent that waited for it (``children_user``, ``children_system`` of proc(5)), so backends and workers
that come and go are not lost. Not counted: an external server or one in a container, which this
machine's process list does not show as ours. Resolution: 10 ms.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil


@dataclass(slots=True)
class Reading:
    """What a metered stretch took; filled in when it ends."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextlib.contextmanager
def metered(server_pid: int | None = None) -> Iterator[Reading]:
    """Measure the block.

    Args:
        server_pid: the postmaster; None where the server is not ours to see.
    """
    reading = Reading()
    cpu, wall = cpu_seconds(server_pid), time.perf_counter()
    yield reading
    reading.wall_s = time.perf_counter() - wall
    reading.cpu_s = cpu_seconds(server_pid) - cpu


def cpu_seconds(server_pid: int | None = None) -> float:
    """CPU seconds that all counted processes have used so far, user and system together."""
    roots = [psutil.Process()]
    if server_pid is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            roots.append(psutil.Process(server_pid))
    family: set[psutil.Process] = set(roots)
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            family.update(root.children(recursive=True))
    return sum(_used(process) for process in family)


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    reaped = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + reaped)
