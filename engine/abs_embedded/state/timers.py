"""Timers of keys: durable as keyed state, ordered by time in memory.

Each timer is an entry (key, time) of a nested state, so it is snapshotted, restored and moved with
its key's group. The order by time is kept in memory by every backend (some 200 bytes per timer).
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Sequence

from abs_embedded.state.contracts import StateBackend

_TIME = struct.Struct(">Q")
_OFFSET = 1 << 63


class Timers:
    """(time, key) pairs, each at most once, in the order of time, then key.

    ``name`` is the state's; event time and processing time need two.
    """

    def __init__(self, backend: StateBackend, name: str = "timers") -> None:
        self._table = backend.table(name, "timers")
        self._set = {
            (_TIME.unpack(sub)[0] - _OFFSET, key) for key, sub, _ in self._table.everything()
        }
        self._queue = sorted(self._set)

    def __len__(self) -> int:
        return len(self._set)

    def register(self, key: bytes, at: int) -> None:
        self.register_many([key], [at])

    def register_many(self, keys: Sequence[bytes], times: Sequence[int]) -> None:
        """Set a timer for each key; times in the job's unit, 64 bits signed."""
        new = sorted(set(zip(times, keys, strict=True)) - self._set)
        for timer in new:
            heapq.heappush(self._queue, timer)
        self._set.update(new)
        self._write(new, b"")

    def cancel(self, key: bytes, at: int) -> None:
        """Remove the timer, if it exists."""
        if (at, key) in self._set:
            self._set.remove((at, key))
            self._write([(at, key)], None)

    def next(self) -> int | None:
        """The time of the first timer."""
        while self._queue and self._queue[0] not in self._set:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def due(self, until: int) -> list[tuple[int, bytes]]:
        """Remove and return all timers up to and including ``until``."""
        fired: list[tuple[int, bytes]] = []
        while (at := self.next()) is not None and at <= until:
            timer = heapq.heappop(self._queue)
            self._set.remove(timer)
            fired.append(timer)
        self._write(fired, None)
        return fired

    def _write(self, timers: Sequence[tuple[int, bytes]], value: bytes | None) -> None:
        self._table.put_many(
            [key for _, key in timers],
            [value] * len(timers),
            [_TIME.pack(at + _OFFSET) for at, _ in timers],
        )
