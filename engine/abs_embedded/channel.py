"""A bounded FIFO channel between two tasks, and the count of elements in flight.

One task puts, one takes. There is no lock: ``deque`` appends and pops are atomic. Back pressure is
by credit: a task takes its next element only while each of its outputs has room, in elements and in
rows, so a channel exceeds its capacity by the output of one element at most. Sources cut what they
read into parts (``PARTS``), small against the bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

from abs_core.barriers.elements import Barrier, End, Watermark

CONTROL = frozenset((Barrier, End, Watermark))
"""Types of elements that are no data."""

UNBOUNDED = 1 << 62
"""Capacity of a back-edge: a loop whose every channel is full could never move again."""


PARTS = 2
"""A source emits at most half of a channel's rows at once; with more in it, there is no room."""


class Tally:
    """Counts elements that are put and not yet processed. Zero, once inputs are shut, is final.

    At zero it calls ``woken``.
    """

    def __init__(self) -> None:
        self.count = 0
        self.woken: list[Callable[[], None]] = []
        self._lock = Lock()

    def add(self) -> None:
        with self._lock:
            self.count += 1

    def done(self) -> None:
        with self._lock:
            self.count -= 1
            empty = not self.count
        if empty:
            for wake in self.woken:
                wake()


class Channel:
    """FIFO, from one task to another.

    Args:
        capacity: elements.
        tallies: count its elements.
        rows_bound: with this many rows it has no room.
    """

    __slots__ = (
        *("_overtaking", "_rows_put", "_rows_taken", "capacity", "queue", "rows_bound"),
        *("taken", "tallies", "woken"),
    )

    def __init__(
        self, capacity: int, tallies: tuple[Tally, ...] = (), rows_bound: int = UNBOUNDED
    ) -> None:
        self.capacity = capacity
        self.rows_bound = rows_bound
        self.tallies = tallies
        # Two numbers, as each is changed by one thread only.
        self._rows_put = self._rows_taken = 0
        self.queue: deque[Any] = deque()
        self.woken: Callable[[], None] = _nobody
        self.taken: Callable[[], None] = _nobody
        self._overtaking = Lock()

    @property
    def rows(self) -> int:
        """Number of rows in the channel."""
        return self._rows_put - self._rows_taken

    def put(self, element: Any) -> None:
        if type(element) is not Barrier:  # barriers go round in a loop as long as the job runs
            self.entered()
        if type(element) not in CONTROL:
            self._rows_put += _rows(element)
        self.queue.append(element)
        self.woken()

    def take(self) -> Any:
        """The next element. Unless it is a barrier, call ``processed`` afterwards."""
        with self._overtaking:
            element = self.queue.popleft()
        if type(element) not in CONTROL:
            self._rows_taken += _rows(element)
        self.taken()
        return element

    def entered(self) -> None:
        """Count an element until it is processed."""
        for tally in self.tallies:
            tally.add()

    def processed(self) -> None:
        for tally in self.tallies:
            tally.done()

    def overtake(self, checkpoint: int) -> None:
        """Put a barrier before all waiting data, but after earlier barriers.

        The barrier carries the overtaken data: in the snapshot it is still in the channel.
        """
        with self._overtaking:
            waiting = list(self.queue)
            earlier = [place for place, e in enumerate(waiting) if type(e) is Barrier]
            place = earlier[-1] + 1 if earlier else 0
            passed = tuple(e for e in waiting if type(e) not in CONTROL)
            self.queue.insert(place, Barrier(checkpoint, passed))
        self.woken()


def _rows(element: Any) -> int:
    # What a function returned by mistake is told by the operator that gets it.
    return len(element) if hasattr(element, "__len__") else 0


def _nobody() -> None:
    """The scheduler polls."""
