"""What a Spark process keeps from epoch to epoch: the values that were used last."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_ENTRIES = 64
"""Number of values. A process works for all queries of an application, and for all sinks of an epoch:
what it evicts among them is closed while it is in use, or made anew in each epoch."""


class LruCache(Generic[K, V]):
    """An LRU cache.

    Args:
        close: called with each evicted value.
    """

    def __init__(self, close: Callable[[V], None] = lambda _: None) -> None:
        self._close = close
        self._values: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value of the key; None if there is none."""
        return self._values.get(key)

    def values(self) -> list[V]:
        """All that is kept."""
        return list(self._values.values())

    def put(self, key: K, value: V) -> None:
        """Keep this value of the key."""
        self._values.pop(key, None)
        while len(self._values) >= MAX_ENTRIES:
            self._close(self._values.pop(next(iter(self._values))))
        self._values[key] = value  # the last one is the one used last

    def of(self, key: K, make: Callable[[], V], instead_of: Callable[[K], bool]) -> V:
        """The value of the key, made if missing.

        Args:
            instead_of: selects keys to evict when this one is made (of an earlier run).
        """
        value = self._values.get(key)
        if value is None:
            for old in [other for other in self._values if instead_of(other)]:
                self._close(self._values.pop(old))
            value = make()
        self.put(key, value)
        return value
