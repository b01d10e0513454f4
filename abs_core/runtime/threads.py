"""Runs tasks for real: a thread for each, back pressure by waiting, one conductor.

The tasks are those of the simulation; only who calls ``step`` is another. A task that fails takes its
region with it, which is restored from the last decision while other regions go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Thread

from abs_core.errors import AbsError, ConfigError, DataError, TargetError, UnavailableError
from abs_core.runtime.alignment import WAYS
from abs_core.runtime.assembly import Assembly, Contexts, Crewing, assemble
from abs_core.runtime.conductor import Conductor, Crew
from abs_core.runtime.coordinator import Acknowledged, Book, Declined, Ended, Settings
from abs_core.runtime.elements import TaskId
from abs_core.runtime.graph import Graph
from abs_core.runtime.plan import loops, regions
from abs_core.runtime.recovery import Recovered, Restore, StoreKeeper
from abs_core.runtime.task import Command, Copy, Task

IDLE_SECONDS = 0.05
"""How long a task with nothing to do sleeps at most; it is woken when there is something."""

Persist = Callable[[Copy, bool], object]
"""Makes a copy durable, as (part, part of the savepoint or None); ``True``: for a savepoint, too."""
Observe = Callable[[str, "TaskId | None", int], None]


@dataclass(slots=True)
class _Region:
    operators: frozenset[str]
    assembly: Assembly
    attempt: int
    stop: Event = field(default_factory=Event)
    threads: list[Thread] = field(default_factory=list)


@dataclass(slots=True)
class Execution:
    """One run of a job in this process.

    Args:
        publish: is told the tasks of a region before they start: their state can be queried;
        withdraw: and their operators, before their state is closed.
        restore: what ``recovered`` was asked for.
        restarts: how often a region is restored before its error ends the job.
        capacity: elements in a channel.
    """

    graph: Graph
    way: str
    settings: Settings
    keeper: StoreKeeper
    contexts: Callable[[Recovered], Contexts]
    persist: Persist
    recovered: Recovered
    restore: Restore
    observe: Observe
    publish: Callable[[Sequence[Task]], None] = lambda tasks: None
    withdraw: Callable[[frozenset[str]], None] = lambda operators: None
    restarts: int = 3
    capacity: int = 16
    conductor: Conductor = field(init=False)
    _regions: list[_Region] = field(default_factory=list)
    _attempts: dict[TaskId, int] = field(default_factory=dict)
    _wakes: dict[TaskId, Event] = field(default_factory=dict)
    _tasks: dict[TaskId, Task] = field(default_factory=dict)
    _failed: list[tuple[frozenset[str], BaseException]] = field(default_factory=list)
    _woken: Event = field(default_factory=Event)
    _background: ThreadPoolExecutor = field(init=False)

    def run(self, stop: Event) -> None:
        """Run until the data ends, or ``stop`` is set; what is undecided then is left undecided.

        Raises:
            AbsError: the job failed, and restoring its region did not help.
        """
        self._check()
        # One thread: a backend's copies are persisted one after the other, in order.
        self._background = ThreadPoolExecutor(1, "persist")
        now = time.monotonic()
        try:
            for operators in regions(self.graph):
                self._regions.append(self._assemble(operators, self.recovered, 0))
            self.conductor = Conductor(
                WAYS[self.way],
                self.settings,
                self._crew(),
                self.keeper,
                self._attempts,
                Book(self.recovered.first, now, now),
                self.observe,
            )
            for region in self._regions:
                self._start(region)
            while not (self.conductor.book.closed or stop.is_set()):
                self._woken.clear()
                while self.conductor.step(time.monotonic()):
                    pass
                if self._failed:
                    self._restore(*self._failed[0])
                else:
                    self._woken.wait(IDLE_SECONDS / 5)
        finally:
            for region in self._regions:
                self._end(region)
            self._background.shutdown(cancel_futures=True)

    def _check(self) -> None:
        way = WAYS.get(self.way)
        if way is None:
            raise ConfigError(
                f"There is no way {self.way!r} to take snapshots; choose of {[*WAYS]}."
            )
        if not way.cycles and loops(self.graph):
            raise ConfigError(
                f"The way {self.way} needs a topological order, and the graph has loops.",
                remedy="use `aligned`, `unaligned` or `stop_the_world`.",
            )

    def _assemble(self, operators: frozenset[str], from_: Recovered, attempt: int) -> _Region:
        crewing = Crewing(
            self.graph,
            WAYS[self.way],
            from_.state,
            from_.first,
            from_.sinks,
            self.contexts(from_),
            lambda copy, now: self._persist(attempt, copy, now=now),
            lambda task: self._say(Ended(task, attempt)),
            self.observe,
            self.capacity,
        )
        parts = {id_: parts for id_, parts in from_.parts.items() if id_ in operators}
        assembly = assemble(crewing, operators, parts)
        for task in assembly.tasks:
            self._attempts[task.id] = attempt
            self._tasks[task.id] = task
            self._wakes[task.id] = Event()
        for task in assembly.tasks:
            wake = self._wakes[task.id].set
            for input_ in task.inputs:
                input_.channel.woken = wake
            for output in task.outputs:
                for channel in output.channels:
                    channel.taken = wake
        for loop in assembly.loops:
            loop.at_zero = lambda: self._wake(assembly.tasks)
        self.publish(assembly.tasks)
        return _Region(operators, assembly, attempt)

    def _start(self, region: _Region) -> None:
        for task in region.assembly.tasks:
            thread = Thread(target=self._work, args=(region, task), name=str(task.id), daemon=True)
            region.threads.append(thread)
            thread.start()

    def _work(self, region: _Region, task: Task) -> None:
        wake, stop = self._wakes[task.id], region.stop

        turns = count()

        def pick(ready: Sequence[int]) -> int:
            return ready[next(turns) % len(ready)]

        try:
            while not stop.is_set():
                wake.clear()
                while not stop.is_set() and task.step(pick):
                    pass
                wake.wait(IDLE_SECONDS)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._failed.append((region.operators, error))
            self._woken.set()

    def _end(self, region: _Region) -> None:
        region.stop.set()
        self._wake(region.assembly.tasks)
        for thread in region.threads:
            thread.join()
        self.withdraw(region.operators)
        for task in region.assembly.tasks:
            task.operator.close()
            task.context.close()

    def _restore(self, operators: frozenset[str], cause: BaseException) -> None:
        """Restore the region that failed from the last decision, under the same generation."""
        retryable = isinstance(cause, TargetError) or not isinstance(cause, AbsError)
        if isinstance(cause, DataError) or not retryable or self.restarts <= 0:
            raise _failure(cause) from cause
        self.restarts -= 1
        at = next(n for n, r in enumerate(self._regions) if r.operators == operators)
        self._end(self._regions[at])
        self._failed = [(failed, error) for failed, error in self._failed if failed != operators]
        self.observe("restored", None, self.conductor.book.decided)
        state = self.keeper.coordinator.roll_forward()
        book = self.conductor.book
        # Until this run has decided something, it begins where it was told to begin.
        from_ = self.keeper.restored(state, self.restore if book.decided < 0 else Restore())
        from_ = Recovered(state, book.next, from_.parts, from_.sinks, from_.source)
        region = self._assemble(operators, from_, self._regions[at].attempt + 1)
        self._regions[at] = region
        self.conductor.crew = self._crew()
        gone = frozenset(task.id for task in region.assembly.tasks)
        self.conductor.restart(gone, time.monotonic())
        self._start(region)

    def _crew(self) -> Crew:
        nodes = self.graph.nodes
        return Crew(
            frozenset(self._tasks),
            frozenset(id_ for id_ in self._tasks if nodes[id_.operator].source is not None),
            frozenset(id_ for id_ in self._tasks if nodes[id_.operator].sink is not None),
            self._send,
            self._resting,
        )

    def _send(self, task: TaskId, command: Command, checkpoint: int) -> None:
        self._tasks[task].mailbox.append((command, checkpoint))
        self._wakes[task].set()

    def _resting(self) -> bool:
        # Held first, then empty: a held source puts nothing any more.
        halted = all(task.state.held for task in self._tasks.values() if not task.inputs)
        return halted and all(r.assembly.in_flight.count == 0 for r in self._regions)

    def _wake(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._wakes[task.id].set()

    def _say(self, message: Acknowledged | Declined | Ended) -> None:
        self.conductor.inbox.append(message)
        self._woken.set()

    def _persist(self, attempt: int, copy: Copy, *, now: bool) -> None:
        if now:
            self._persisted(attempt, copy)
        else:
            self._background.submit(self._persisted, attempt, copy)

    def _persisted(self, attempt: int, copy: Copy) -> None:
        try:
            part = self.persist(copy, copy.checkpoint in self.conductor.savepoints)
        except Exception as error:  # noqa: BLE001 - the checkpoint fails, not the job
            self._say(Declined(copy.task, attempt, copy.checkpoint, str(error)))
            return
        self.observe("persisted", copy.task, copy.checkpoint)
        self._say(Acknowledged(copy.task, attempt, copy.checkpoint, part, copy.handles))


def _failure(cause: BaseException) -> AbsError:
    if isinstance(cause, AbsError):
        return cause
    return UnavailableError(
        f"An operator failed: {type(cause).__name__}.",
        remedy="see the cause; what is decided stays, and a restart goes on from there.",
    )
