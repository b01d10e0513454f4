"""A cache of open resources, kept by a Spark process from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_KEPT = 8

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """An LRU cache.

    Args:
        close: called with each evicted value.
    """

    def __init__(self, close: Callable[[V], None]) -> None:
        self._close = close
        self._values: dict[K, V] = {}

    def of(self, key: K, make: Callable[[], V], instead_of: Callable[[K], bool]) -> V:
        """The value of the key, made if missing.

        Args:
            instead_of: selects keys to evict when this one is made (of an earlier run).
        """
        value = self._values.pop(key, None)
        if value is None:
            for old in [known for known in self._values if instead_of(known)]:
                self._close(self._values.pop(old))
            while len(self._values) >= _KEPT:
                self._close(self._values.pop(next(iter(self._values))))
            value = make()
        self._values[key] = value  # the last one is the one used last
        return value
