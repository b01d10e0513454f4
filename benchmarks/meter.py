"""Wall and CPU seconds of a stretch of work, over all processes that do it.

Counted: this process, every process below it (Spark's JVM and its Python workers, writer processes)
and the PostgreSQL server with its backends. A process that ended meanwhile is counted through the
parent that waited for it (``children_user``, ``children_system`` of proc(5)), so backends that come
and go are not lost. Spark's Python daemon waits for none of its workers: of a worker that ends within
the stretch, what it used before the stretch is left out, and what it used in it is lost; idle workers
end after a minute, so that is little. Not counted: an external server or one in a container, which
is not among this process's own. Resolution: 10 ms.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    before, began = _family(server_pid), time.perf_counter()
    yield reading
    reading.wall_s = time.perf_counter() - began
    reading.cpu_s = _between(before, _family(server_pid))


@dataclass(frozen=True, slots=True)
class _Used:
    """CPU seconds of a process and of the children it waited for; whether its parent waits for it."""

    seconds: float
    waited_for: bool


_Family = Mapping[psutil.Process, _Used]


def _between(before: _Family, after: _Family) -> float:
    total = sum(used.seconds for used in after.values())
    for process, used in before.items():
        # One that is gone, and that nobody waited for, has left no trace in ``after``.
        if process in after or used.waited_for:
            total -= used.seconds
    return round(total, 6)  # clock ticks: what lies below is what floats leave


def _family(server_pid: int | None) -> _Family:
    roots = [psutil.Process()]
    if server_pid is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            roots.append(psutil.Process(server_pid))
    members: set[psutil.Process] = set(roots)
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            members.update(root.children(recursive=True))
    family = {}
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            times, parent = member.cpu_times(), member.ppid()
            reaped = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
            used = float(times.user + times.system + reaped)
            family[member] = _Used(used, not _ignores_children(parent))
    return family


def _ignores_children(pid: int) -> bool:
    """Whether the kernel reaps this process's children without adding up their times (wait(2))."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(mask, 16) >> (signal.SIGCHLD - 1) & 1)
