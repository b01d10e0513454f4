"""Breadth-first over all histories, to the last state or to the first broken rule."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from tests.model.exhaustive.book import Book, Violated
from tests.model.exhaustive.configuration import Configuration
from tests.model.exhaustive.drivers import driver_steps
from tests.model.exhaustive.effects import show
from tests.model.exhaustive.invariants import check
from tests.model.exhaustive.recovery import check_recovery
from tests.model.exhaustive.tasks import Step, task_steps
from tests.model.exhaustive.wire import deliveries
from tests.model.exhaustive.world import NEW, OFF, STATUS, World


@dataclass(frozen=True, slots=True)
class Explored:
    """What an exploration saw.

    Args:
        states: how many different ones.
        transitions: how many steps led to them.
        recoveries: from how many registers and targets a fresh run was tried.
        ends: in how many states nothing can happen any more.
    """

    name: str
    states: int
    transitions: int
    recoveries: int
    ends: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.states:,} states, {self.transitions:,} transitions, "
            f"{self.recoveries:,} recoveries, {self.ends:,} ends, {self.seconds:.1f} s"
        )


def explore(config: Configuration, limit: int | None = None, *, exact: bool = False) -> Explored:
    """Visit every state that the configuration can get to.

    Args:
        limit: give up after so many states.
        exact: remember whole states. By default they are told apart by their 64-bit hash: two
            different ones that share it would hide one; for ten million states the odds of any such
            pair are about 1 in 400,000.

    Raises:
        Violated: a rule is broken; the message is the shortest history that leads to it.
        RuntimeError: there are more states than ``limit``.
    """
    return _Exploration(config, _itself if exact else hash).run(limit)


def _itself(world: World) -> Hashable:
    return world


class _Exploration:
    def __init__(self, config: Configuration, key: Callable[[World], Hashable]) -> None:
        self.config = config
        self.key = key
        self.book = Book(config)
        count = len(self.book.writers)
        firsts = [
            min(spec.first for spec in config.runs if spec.content == content)
            for content in self.book.contents
        ]
        drivers = tuple(OFF for _ in config.runs)
        self.start = World(0, (), (0,) * count, drivers, (NEW,) * count, tuple(firsts))
        self.symmetric = _symmetric(self.book)
        # Key of a state -> key of the one that led to it: enough to walk the history again.
        self.parents: dict[Hashable, Hashable] = {}
        self.recovered: set[tuple[int, tuple[int, ...]]] = set()

    def run(self, limit: int | None) -> Explored:
        began = time.monotonic()
        transitions = ends = 0
        self.parents[self.key(self.start)] = None
        todo = deque([self.start])
        while todo:
            world = todo.popleft()
            before = transitions
            for after in self._successors(world):
                transitions += 1
                key = self.key(after)
                if key in self.parents:
                    continue
                self.parents[key] = self.key(world)
                self._check(after)
                todo.append(after)
            ends += transitions == before
            if limit is not None and len(self.parents) > limit:
                raise RuntimeError(f"{self.config.name}: more than {limit:,} states")
        seconds = time.monotonic() - began
        states, recoveries = len(self.parents), len(self.recovered)
        return Explored(self.config.name, states, transitions, recoveries, ends, seconds)

    def _successors(self, world: World) -> Iterator[World]:
        try:
            for _, after in self._steps(world):
                yield after
        except (Violated, AssertionError) as broken:
            raise Violated(self._history(world, str(broken))) from broken

    def _steps(self, world: World) -> Iterator[Step]:
        for steps in (task_steps, driver_steps, deliveries):
            for what, after in steps(self.book, world):
                yield what, self._canonical(after)

    def _check(self, world: World) -> None:
        try:
            check(self.book, world)
            statuses = tuple(code & STATUS for code in world.handles)
            key = world.register, statuses
            if self.config.recovers and key not in self.recovered:
                self.recovered.add(key)
                check_recovery(self.book, world)
        except AssertionError as broken:
            raise Violated(self._history(world, str(broken))) from broken

    def _canonical(self, world: World) -> World:
        """Sort writers that are interchangeable."""
        if not self.symmetric:
            return world
        handles, tasks = world.handles, world.tasks
        for group in self.symmetric:
            pairs = [(tasks[i], handles[i]) for i in group]
            ordered = sorted(pairs)
            if ordered != pairs:
                new_tasks, new_handles = list(tasks), list(handles)
                for index, (task, handle) in zip(group, ordered, strict=True):
                    new_tasks[index], new_handles[index] = task, handle
                tasks, handles = tuple(new_tasks), tuple(new_handles)
        register, flights, _, drivers, _, noted = world
        return World(register, flights, handles, drivers, tasks, noted)

    def _history(self, world: World, broken: str) -> str:
        """The shortest way to the world, one line a step, and what is wrong in it."""
        path = [self.key(world)]
        while (parent := self.parents[path[-1]]) is not None:
            path.append(parent)
        here, lines = self.start, []
        for number, key in enumerate(reversed(path[:-1]), 1):
            what, here = next((w, a) for w, a in self._steps(here) if self.key(a) == key)
            lines.append(f"{number:3}. {what}")
        return "\n".join([f"{self.config.name}: {broken}", *lines, *self._picture(world)])

    def _picture(self, world: World) -> list[str]:
        state = self.book.state(world.register) if world.register else None
        pictured = [f"  register: {state}"]
        for writer, code, task in zip(self.book.writers, world.handles, world.tasks, strict=True):
            pictured.append(f"  {writer}: task {task.at.name}, handle {show(code)}")
        pictured += [f"  run{run}: {d.at.name}" for run, d in enumerate(world.drivers)]
        return pictured


def _symmetric(book: Book) -> list[list[int]]:
    """Groups of writers whose handles every decision names together: no retries among them."""
    return [
        [writer.place for writer in writers]
        for (run, _), writers in book.of.items()
        if book.config.runs[run].retries == 0 and len(writers) > 1
    ]
