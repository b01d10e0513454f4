"""A region: tasks that fail and are restored together, each in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Thread

from abs_core.barriers.elements import TaskId
from abs_embedded.assembly import Assembly
from abs_embedded.task import Task

IDLE_SECONDS = 0.05
"""How long a task with nothing to do sleeps at most; it is woken when there is something."""


@dataclass(slots=True)
class Region:
    """Runs an assembly once.

    Args:
        failed: called by a failed task's thread, which then ends.
        hang_after: seconds after which a task in one step is not waited for.
    """

    operators: frozenset[str]
    assembly: Assembly
    failed: Callable[[Region, TaskId, BaseException], None]
    hang_after: float | None = None
    _stop: Event = field(default_factory=Event)
    _threads: list[Thread] = field(default_factory=list)

    def start(self) -> None:
        for task in self.assembly.tasks:
            thread = Thread(target=self._work, args=(task,), name=str(task.id), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Wait until all tasks have ended their present step, except hanging ones."""
        self._stop.set()
        for task in self.assembly.tasks:
            task.wake.set()
        # No threads, where it was never started.
        for task, thread in zip(self.assembly.tasks, self._threads, strict=False):
            while thread.is_alive() and not task.abandoned:
                thread.join(IDLE_SECONDS)
                if self.hang_after is not None and task.hangs(time.monotonic(), self.hang_after):
                    task.abandoned = True
            if task.abandoned:
                # Its thread still uses what would be closed.
                self.assembly.left.add(task.id)

    def _work(self, task: Task) -> None:
        wake, stop, turns = task.wake, self._stop, count()

        def pick(ready: Sequence[int]) -> int:
            return ready[next(turns) % len(ready)]

        try:
            while not stop.is_set():
                wake.clear()
                moving = True
                while moving and not stop.is_set():
                    task.began = time.monotonic()
                    moving = task.step(pick)
                    task.began = None
                wake.wait(IDLE_SECONDS)
        # A user's function may raise anything: SystemExit, too, or a library's panic.
        except BaseException as error:  # noqa: BLE001 - nobody else would see it
            task.began = None
            self.failed(self, task.id, error)
