"""A process that stands still at one of its calls while another does its work, and then goes on."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any


class Pause:
    """Stops one call: the other one works before it is made. Its other threads stop at their next."""

    def __init__(self) -> None:
        self.calls = 0
        self.at: int | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        self._lock = RLock()

    def call(self) -> None:
        with self._lock:
            number, self.calls = self.calls, self.calls + 1
            if number == self.at:
                self.meanwhile()


class Stopped:
    """A register, committer, or store of certificates or snapshots, whose calls may be stopped."""

    def __init__(self, inner: Any, pause: Pause) -> None:
        self._inner = inner
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def called(*args: Any, **named: Any) -> Any:
            self._pause.call()
            return found(*args, **named)

        return called


class StoppedSink(Stopped):
    """A sink, whose register and committer may be stopped."""

    def register(self) -> Any:
        return Stopped(self._inner.register(), self._pause)

    def committer(self) -> Any:
        return Stopped(self._inner.committer(), self._pause)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
