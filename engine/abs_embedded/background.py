"""Persists copies in one background thread, in order, without those of failed checkpoints."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

from abs_core.barriers.elements import Copy


class Background:
    """A queue of copies, and the thread that persists them in order.

    Queued copies hold memory: those of a failed checkpoint are dropped at once, so there are never
    more than one for each task and pending checkpoint, and the one in progress. ``persist`` and
    ``drop`` never raise.
    """

    def __init__(self, persist: Callable[[Copy], None], drop: Callable[[Copy], None]) -> None:
        self._persist, self._drop = persist, drop
        self._queue: deque[Copy] = deque()
        self._busy = self._closed = False
        self._changed = Condition()
        # A daemon: a store that hangs must not keep the process from ending.
        Thread(target=self._work, name="persist", daemon=True).start()

    def __len__(self) -> int:
        return len(self._queue)

    def submit(self, copy: Copy) -> None:
        with self._changed:
            self._queue.append(copy)
            self._changed.notify_all()

    def drop(self, checkpoint: int) -> None:
        """Free the waiting copies of a failed checkpoint."""
        with self._changed:
            dead = [copy for copy in self._queue if copy.checkpoint == checkpoint]
            self._queue = deque(c for c in self._queue if c.checkpoint != checkpoint)
            self._changed.notify_all()
        for copy in dead:
            self._drop(copy)

    def rest(self, timeout: float | None) -> bool:
        """Wait until the queue is empty and idle; False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._queue or self._busy), timeout)

    def close(self) -> None:
        """Persist nothing more; a copy in progress is finished."""
        with self._changed:
            self._closed, dead = True, list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for copy in dead:
            self._drop(copy)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                copy, self._busy = self._queue.popleft(), True
            self._persist(copy)
            del copy  # it holds memory
