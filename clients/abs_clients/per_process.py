"""One object per key and process, not shared with a forked child."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """An object with connections and cached answers."""

    def close(self) -> None:
        """Close the connections and clear the answers; the next use connects anew. Must not raise."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Closable)


class PerProcess(Generic[K, V]):
    """One object per key, made at the first request, closed when the process ends.

    ``close`` keeps the objects: a thread that uses one meanwhile may connect it again, and only an
    object that is still here can be closed once more.

    A forked child begins with none, and never closes its parent's: that would end sessions that the
    parent uses.

    Args:
        make: called under a lock, so it must not connect.
        at_exit: close the objects when the process ends; not if closing may wait for a server.
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
        with self._lock:
            kept = self._objects.get(key)
            if kept is None:
                kept = self._objects[key] = self._make(key)
            return kept

    def close(self, key: K | None = None) -> None:
        """Close the object of ``key``, or all; the next use of one connects anew."""
        with self._lock:
            keys = list(self._objects) if key is None else [key]
            closing = [self._objects[one] for one in keys if one in self._objects]
        for one in closing:
            one.close()

    def _forked(self) -> None:
        # The parent's lock may be held by a thread that does not exist here. Its objects are kept:
        # the garbage collector would close what they hold.
        self._lock = threading.Lock()
        self._inherited.append(self._objects)
        self._objects = {}
