"""One run of a simulated job: a process, from its start to its end or crash."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from abs_core.barriers.alignment import SnapshotStrategy
from abs_core.barriers.checkpoint_rules import (
    Acknowledged,
    CoordinatorState,
    Declined,
    Ended,
    Settings,
)
from abs_core.barriers.elements import Copy, TaskId
from abs_core.errors import FencedError, HungError
from abs_core.model import HandleName
from abs_embedded.assembly import Assembly, AttemptSettings, Part, Parts, assemble
from abs_embedded.channel import CONTROL, UNBOUNDED
from abs_embedded.checkpoint_coordinator import CheckpointCoordinator
from abs_embedded.graph import Graph, Node
from abs_embedded.plan import regions
from abs_embedded.sinks import SinkOperator, undecided
from abs_embedded.sources import SourceOperator
from abs_embedded.state.operator_state import Contents, OperatorState, redistribute
from abs_embedded.task import Task
from tests.model.simulation.dataflow import Windowing, owner
from tests.model.simulation.inputs import PausingReader
from tests.model.simulation.world import Keeper, World

PATIENCE_STEPS = 10_000
"""A timeout may be too short for ever; after so many steps of a run it is not any more."""


HANG_STEPS = 300
"""A task that is in one step for so long is given up."""

ROWS = 4
"""In a channel: source batches of two rows are cut."""


@dataclass(frozen=True, slots=True)
class State:
    """The logical copy of a simulated task's state."""

    counts: dict[int, int]
    lists: Contents
    entries: dict[tuple[bytes, bytes], bytes]


class SimulatedContext:
    """A task's state, in a dictionary that a snapshot copies."""

    def __init__(self, node: Node, task: TaskId, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.width = node.parallelism
        states: list[State] = [part.state for part in parts]
        self.counts = {
            key: count
            for state in states
            for key, count in state.counts.items()
            if owner(key, node.parallelism) == task.subtask
        }
        self.entries = {
            (key, sub): value
            for state in states
            for (key, sub), value in state.entries.items()
            if owner(key[0], node.parallelism) == task.subtask
        }
        self.lists = OperatorState(
            redistribute([state.lists for state in states], task.subtask, node.parallelism)
        )

        self.held: set[int] = set()
        """Checkpoints of copies that a backend would still keep."""

    def copy(self, checkpoint: int) -> State:
        self.held.add(checkpoint)
        return State(dict(self.counts), self.lists.snapshot(), dict(self.entries))

    def decided(self, checkpoint: int) -> None:
        self.held = {number for number in self.held if number > checkpoint}

    def aborted(self, checkpoint: int) -> None:
        self.held.discard(checkpoint)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Bugs:
    """The parts that a planted bug replaces."""

    task: type[Task] = Task
    coordinator: type[CheckpointCoordinator] = CheckpointCoordinator
    keeper: type[Keeper] = Keeper
    context: type[SimulatedContext] = SimulatedContext
    assemble: Callable[[AttemptSettings, frozenset[str], Parts], Assembly] = assemble
    discarded: Callable[[Sequence[Assembly], int], list[HandleName]] = lambda every, at: undecided(
        every[at].tasks
    )
    """Of all assemblies, and which is restored: the handles that no report will name any more."""


class Run:
    """A process; ``step`` lets something happen in it.

    Args:
        chance: makes every choice of the schedule.
        decline: how likely a task fails to make its part durable.
    """

    def __init__(
        self,
        world: World,
        graph: Graph,
        strategy: SnapshotStrategy,
        settings: Settings,
        chance: Random,
        name: str,
        bugs: Bugs,
        *,
        decline: float,
    ) -> None:
        self._world = world
        self._graph = graph
        self._chance = chance.random
        self._bugs = bugs
        self._decline = decline
        self._keeper = bugs.keeper(world, name)
        self._settings = settings
        self._strategy = strategy
        self._persisting: list[Copy] = []
        self.hung: Task | None = None
        self.now = 0
        state, first, self._parts = self._keeper.recover()
        self._state = state
        self._regions = regions(graph)
        self._assemblies: list[Assembly] = []
        self._by_id: dict[TaskId, Task] = {}
        self._sinks = [node.id for node in graph.nodes.values() if node.sink is not None]
        self._restored_next = first
        for region in self._regions:
            self._assemblies.append(self._assemble(region, first, 0))
        self._index()
        # The clock is the number of steps, of which a task has its share.
        self._settings = settings = replace(
            settings,
            interval=settings.interval * len(self._tasks),
            min_pause=settings.min_pause * len(self._tasks),
            timeout=settings.timeout * len(self._tasks),
        )
        self.coordinator = bugs.coordinator(
            strategy,
            settings,
            self._by_id,
            self._resting,
            self._keeper,
            CoordinatorState(first, 0.0, 0.0),
        )

    @property
    def closed(self) -> bool:
        return self.coordinator.state.closed

    def step(self) -> None:
        """One thing happens: the coordinator, a background write, or a task's step.

        Raises:
            HungError: the watchdog has given up the task ``hung``.
            Crash: the process ends here.
        """
        self.now += 1
        if self.hung is not None and self.hung.hangs(self.now, HANG_STEPS):
            self.hung.abandoned = True
            raise HungError(f"{self.hung.id} does not come back.", remedy="none")
        if self.now == PATIENCE_STEPS:
            self.coordinator.settings = replace(self._settings, timeout=math.inf)
        roll = self._chance()
        if roll < 0.08:
            if self.coordinator.step(self.now):
                self._idle.clear()
        elif roll < 0.16 and self._persisting:
            at = int(self._chance() * len(self._persisting))
            self._persist(self._persisting.pop(at))
        else:
            self._somewhere(slow_too=roll < 0.3)

    def broken(self) -> str:
        """What must never be, at any time; empty where it is not."""
        return self._leak() or self._overfull()

    def _overfull(self) -> str:
        """A channel that had no room when the last batch was put into it."""
        for task in self._tasks:
            for channel in (channel for out in task.outputs for channel in out.channels):
                if channel.rows <= ROWS or channel.capacity == UNBOUNDED:
                    continue
                batches = [len(each) for each in channel.queue if type(each) not in CONTROL]
                if sum(batches[:-1]) >= ROWS:
                    return f"{task.id} has put {sum(batches)} rows into a channel of {ROWS}"
        return ""

    def passed(self, time: int) -> bool:
        """Whether every window has heard that event time is so late."""
        windows = (t.operator for t in self._tasks if isinstance(t.operator, Windowing))
        return all(window.reached >= time for window in windows)

    def all_back(self) -> bool:
        """Whether each split was read after its pause, and everybody knows that it is back."""
        return not any(task._idle or task._all_idle for task in self._tasks) and all(
            reading.reader.back
            for task in self._tasks
            if isinstance(task.operator, SourceOperator)
            for reading in task.operator._readings
            if isinstance(reading.reader, PausingReader)
        )

    def _leak(self) -> str:
        """What a task holds of a checkpoint that it has been told to be over; empty where nothing."""
        pending = {each.checkpoint for each in self.coordinator.state.pending}
        for task in self._tasks:
            context = task.context
            if task.mailbox or not isinstance(context, SimulatedContext):
                continue
            if over := context.held - pending:
                return f"{task.id} holds the copy of checkpoint {min(over)}, which is over"
        return ""

    def _somewhere(self, *, slow_too: bool) -> None:
        """The first task from a random one on that has something to do does it."""
        tasks = self._tasks if slow_too else self._swift
        if slow_too in self._idle:
            tasks = [task for task in tasks if not task.inputs]
        start = int(self._chance() * len(tasks))
        for task in (*tasks[start:], *tasks[:start]):
            if task is not self.hung and task.step(self._pick):
                self._idle.clear()
                return
        self._idle.add(slow_too)

    def hang(self) -> None:
        """A task does not come out of the step that it begins now."""
        self.hung = self._tasks[int(self._chance() * len(self._tasks))]
        self.hung.began = self.now

    @property
    def hung_sink(self) -> bool:
        """Whether what hangs may still write: then no restore under this generation, but a new run."""
        return self.hung is not None and isinstance(self.hung.operator, SinkOperator)

    def come_back(self, task: Task) -> str:
        """A task that was given up goes on, until it is stopped; what it has left behind."""
        before = self._world.written()
        with suppress(FencedError):
            while task.step(self._pick):
                pass
        left = before != self._world.written()
        return f"{task.id} came back after it was given up, and left a trace" if left else ""

    def restart_region(self, of: Task | None = None) -> None:
        """A region of the job fails, and is restored from the last decision.

        Args:
            of: a task of it; None: any region.
        """
        at = int(self._chance() * len(self._regions))
        if of is not None:
            at = next(n for n, a in enumerate(self._assemblies) if of in a.tasks)
        self.hung = None
        state, _, self._parts = self._keeper.recover()
        self._keeper.coordinator.discard(self._bugs.discarded(self._assemblies, at))
        self._state = state
        gone = {task.id for task in self._assemblies[at].tasks}
        attempt = 1 + max(task.attempt for task in self._assemblies[at].tasks)
        self._persisting = [copy for copy in self._persisting if copy.task not in gone]
        self._assemblies[at] = self._assemble(
            self._regions[at], self.coordinator.state.next, attempt
        )
        self._index()
        self.coordinator.restart(frozenset(gone), self.now)

    def _assemble(self, region: frozenset[str], first: int, attempt: int) -> Assembly:
        new_task = partial(
            self._bugs.task,
            strategy=self._strategy,
            persist=self._take,
            attempt=attempt,
            ended=lambda task: self.coordinator.inbox.append(Ended(task.id, task.attempt)),
        )
        how = AttemptSettings(
            self._graph,
            self._state,
            first,
            self._sinks,
            self._bugs.context,
            capacity=3,
            rows=ROWS,
            count=self._strategy.halts,
            task=new_task,
        )
        return self._bugs.assemble(how, region, self._parts)

    def _index(self) -> None:
        self._tasks = [task for assembly in self._assemblies for task in assembly.tasks]
        self._swift = [task for task in self._tasks if self._chance() > 0.15]
        self._by_id.update((task.id, task) for task in self._tasks)
        # Which of the two had nothing to do when all were asked. Until something happens, only sources
        # are asked again: these questions were most of a simulation's time.
        self._idle: set[bool] = set()

    def _resting(self) -> bool:
        halted = all(task.state.held for task in self._tasks if not task.inputs)
        return halted and all(a.in_flight.count == 0 for a in self._assemblies)

    def _take(self, copy: Copy, now: bool) -> None:
        if copy.failed:
            return
        if now:
            self._persist(copy)
        else:
            self._persisting.append(copy)

    def _persist(self, copy: Copy) -> None:
        self._world.point()
        if self._decline and self._chance() < self._decline:
            self.coordinator.inbox.append(
                Declined(copy.task, copy.attempt, copy.checkpoint, "bad luck")
            )
            return
        part = Part(copy.state, copy.log)
        self.coordinator.inbox.append(
            Acknowledged(copy.task, copy.attempt, copy.checkpoint, part, copy.handles)
        )

    def _pick(self, ready: Sequence[int]) -> int:
        return ready[int(self._chance() * len(ready))]
