"""Lanes: processes that write at the same time, each on one connection of its own, as Spark's tasks do.

Threads would share the interpreter's lock, which tasks do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Protocol, Self

from benchmarks.meter import metered
from benchmarks.ratios import Sample
from benchmarks.target import Target

Parts = Mapping[str, float]


class Lane(Protocol):
    """What runs inside a lane's process. Built there, once; whatever it needs is ready then."""

    def run(self, side: str) -> Parts:
        """Do what the side does, once, and say what took how many seconds."""
        ...

    def settle(self, side: str) -> None:
        """Make visible what was only pre-committed; not timed."""
        ...


MakeLane = Callable[[Target, int, int], Lane]
"""From the target, the lane's number and the rows it writes; a function that can be pickled."""


class Lanes:
    """``count`` processes, kept over all runs. A context manager: they end with it.

    Args:
        make: builds a lane in its process.
        rows: that each lane writes in a run.
    """

    def __init__(self, make: MakeLane, target: Target, count: int, rows: int) -> None:
        self._target = target
        self._rows = rows
        context = get_context("spawn")
        pairs = [context.Pipe() for _ in range(count)]
        self._pipes: list[Connection] = [ours for ours, _ in pairs]
        self._processes = [
            context.Process(target=_serve, args=(theirs, make, target, number, rows), daemon=True)
            for number, (_, theirs) in enumerate(pairs)
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        self._all("ready", "")
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()  # a lane ends when its pipe does
        for process in self._processes:
            process.join(timeout=10)
            process.kill()

    def run(self, side: str) -> Sample:
        """All lanes at once, from an empty table; timed until the last one is done."""
        self._target.reset()
        with metered(self._target.pid) as taken:
            parts = self._all("run", side)
        self._all("settle", side)
        rows = self._rows * len(self._pipes)
        if (found := self._target.count()) != rows:
            raise AssertionError(f"{side}: {found} rows in the table, written were {rows}")
        return Sample(taken.wall_s, taken.cpu_s, rows, _means(parts))

    def _all(self, what: str, side: str) -> list[Parts]:
        for pipe in self._pipes:
            pipe.send((what, side))
        answers = [pipe.recv() for pipe in self._pipes]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


def _means(parts: Sequence[Parts]) -> tuple[tuple[str, float], ...]:
    names = list(parts[0])
    return tuple((name, sum(p[name] for p in parts) / len(parts)) for name in names)


def _serve(pipe: Connection, make: MakeLane, target: Target, number: int, rows: int) -> None:
    lane: Lane | None = None
    while True:
        try:
            what, side = pipe.recv()
        except EOFError:
            return
        try:
            if lane is None:
                lane = make(target, number, rows)
            answer: Parts | Exception = {}
            if what == "run":
                answer = lane.run(side)
            elif what == "settle":
                lane.settle(side)
        except Exception as error:  # noqa: BLE001 - carried to the parent, which raises it
            answer = RuntimeError(f"lane {number}, {side}: {type(error).__name__}: {error}")
        pipe.send(answer)


class Stopwatch:
    """Seconds between calls, by name."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """The time since the last lap, or since the start, went into ``name``."""
        now = time.perf_counter()
        self.parts[name] = self.parts.get(name, 0.0) + now - self._last
        self._last = now
