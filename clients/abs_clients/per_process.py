"""Objects that a process has once for each key, and that a forked child must not share with it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """What holds connections."""

    def close(self) -> None:
        """Close them; must not raise."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Closable)


class PerProcess(Generic[K, V]):
    """One object for each key, made when it is first asked for, closed when the process ends.

    A forked child begins with none. It never closes its parent's: that would end sessions that the
    parent still uses.

    Args:
        make: makes the object of a key; called under a lock, so it must not connect.
        at_exit: close the objects when the process ends; not where closing may wait for a server.
    """

    def __init__(self, make: Callable[[K], V], *, at_exit: bool = True) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._objects: dict[K, V] = {}
        self._inherited: list[dict[K, V]] = []
        os.register_at_fork(after_in_child=self._forked)
        if at_exit:
            atexit.register(self.close)

    def of(self, key: K) -> V:
        """The object of ``key``."""
        with self._lock:
            found = self._objects.get(key)
            if found is None:
                found = self._objects[key] = self._make(key)
            return found

    def close(self, key: K | None = None) -> None:
        """Close the object of ``key``; all of them where None. They come again when asked for."""
        with self._lock:
            keys = list(self._objects) if key is None else [key]
            closing = [self._objects.pop(one) for one in keys if one in self._objects]
        for one in closing:
            one.close()

    def _forked(self) -> None:
        # The parent's lock may be held by a thread that does not exist here. Its objects are kept:
        # the garbage collector would close what they hold.
        self._lock = threading.Lock()
        self._inherited.append(self._objects)
        self._objects = {}
