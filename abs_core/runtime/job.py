"""Runs a graph: the one call that users make."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from abs_core.cell import DEFAULT_PATIENCE, Patience
from abs_core.contracts import RegisterStore
from abs_core.coordinator import Coordinator
from abs_core.errors import ConfigError
from abs_core.events import Observer, ignore
from abs_core.model import JobState, job_key
from abs_core.protocol import Identity
from abs_core.runtime.assembly import Contexts
from abs_core.runtime.context import TaskContext
from abs_core.runtime.coordinator import Settings
from abs_core.runtime.elements import TaskId
from abs_core.runtime.graph import Graph, Node
from abs_core.runtime.recovery import Recovered, Restore, StoreKeeper, sink_order
from abs_core.runtime.sinks import SinksCommitter
from abs_core.runtime.snapshot import DurablePart, persist
from abs_core.runtime.task import Copy, Task
from abs_core.runtime.threads import Execution, Observe
from abs_core.state.contracts import NewBackend, Place, SnapshotStore, StateBackend
from abs_core.state.heap import HeapBackend
from abs_core.state.keygroups import GroupRange

if TYPE_CHECKING:
    # It brings Arrow Flight, which jobs without queries shall not wait for.
    from abs_core.state.query import QueryServer

LINEAGE = "embedded"


def unobserved(what: str, task: TaskId | None, checkpoint: int) -> None:
    """Observes nothing."""


@dataclass(slots=True)
class Job:
    """A graph with all that it needs to run.

    Args:
        store: where snapshots go.
        register: holds the job's register; the sink's own, where there is one sink.
        backend: keeps keyed state.
        way: how snapshots are taken; see ``alignment``.
        savepoints: where a savepoint goes.
        retain: how many checkpoints are kept; always one more than may be in flight.
        queries: serves the keyed state of the running job, read-only.
    """

    graph: Graph
    store: SnapshotStore
    register: RegisterStore
    backend: NewBackend = HeapBackend
    way: str = "aligned"
    settings: Settings = field(default_factory=Settings)
    savepoints: SnapshotStore | None = None
    retain: int = 3
    restarts: int = 3
    capacity: int = 16
    patience: Patience = DEFAULT_PATIENCE
    observe: Observe = unobserved
    events: Observer = ignore
    queries: QueryServer | None = None
    _execution: Execution | None = None

    def run(self, restore: Restore | None = None, stop: Event | None = None) -> None:
        """Recover, and run until the data ends or ``stop`` is set.

        When it returns because the data ended, everything is committed.

        Raises:
            AbsError: see ``StoreKeeper.recover`` and ``Execution.run``.
        """
        keeper = self._keeper()
        restore = restore or Restore()
        recovered = keeper.recover(restore)
        self._execution = Execution(
            self.graph,
            self.way,
            self.settings,
            keeper,
            self._contexts,
            self._persist,
            recovered,
            restore,
            self.observe,
            self._publish,
            self._withdraw,
            self.restarts,
            self.capacity,
        )
        self._execution.run(stop or Event())

    def ask_savepoint(self) -> None:
        """Let the next checkpoint be a savepoint, too: whole, and never deleted by retention.

        Raises:
            ConfigError: the job does not run, or has no store for savepoints.
        """
        if self.savepoints is None or self._execution is None:
            raise ConfigError("A savepoint needs a running job with a `savepoints` store.")
        self._execution.conductor.asked = True

    def _keeper(self) -> StoreKeeper:
        sinks = {node.id: node.sink for node in self.graph.nodes.values() if node.sink is not None}
        if not sinks:
            raise ConfigError(f"The graph {self.graph.name} has no sink.")
        stored = self.register.load(job_key(self.graph.name))
        order = sink_order(self.graph, self.store, None if stored is None else stored.state)
        committers = [sinks[id_].committer() if id_ in sinks else None for id_ in order]
        return StoreKeeper(
            self.graph,
            self.store,
            Coordinator(
                Identity(
                    job_key(self.graph.name),
                    LINEAGE,
                    secrets.token_hex(8),
                    " + ".join(sorted({sink.target for sink in sinks.values()})),
                ),
                self.register,
                SinksCommitter(committers),
                co_commit=False,
                patience=self.patience,
                observe=self.events,
                fence=_fencing([sink.fence for sink in sinks.values()]),
            ),
            max(self.retain, self.settings.in_flight + 1),
            self.savepoints,
            order,
        )

    def _contexts(self, recovered: Recovered) -> Contexts:
        def make(node: Node, task: TaskId, parts: object) -> TaskContext:
            states = [part.state for part in parts]  # type: ignore[attr-defined]
            place = self._place(task, node.parallelism, recovered.state.generation)
            source = None if recovered.source is self.store else recovered.source
            return TaskContext(
                task, node.parallelism, place, self.store, self.backend, states, source
            )

        return make

    def _publish(self, tasks: Sequence[Task]) -> None:
        if self.queries is None:
            return
        kept: dict[str, list[tuple[Place, StateBackend]]] = {}
        for task in tasks:
            context = task.context
            if isinstance(context, TaskContext) and context.kept is not None:
                kept.setdefault(task.id.operator, []).append((context.place, context.kept))
        for operator, subtasks in kept.items():
            self.queries.publish(operator, subtasks)

    def _withdraw(self, operators: frozenset[str]) -> None:
        if self.queries is not None:
            for operator in operators:
                self.queries.withdraw(operator)

    def _persist(self, copy: Copy, savepoint: bool) -> tuple[DurablePart, DurablePart | None]:
        node = self.graph.nodes[copy.task.operator]
        place = self._place(copy.task, node.parallelism, 0)
        try:
            saved = None
            if savepoint and self.savepoints is not None:
                saved = persist(copy, self.savepoints, place, whole=True)
            return persist(copy, self.store, place, whole=False), saved
        finally:
            if copy.state.keyed is not None:
                copy.state.keyed.close()

    def _place(self, task: TaskId, parallelism: int, generation: int) -> Place:
        groups = GroupRange.of(task.subtask, parallelism, self.graph.max_parallelism)
        return Place(
            job_key(self.graph.name),
            task.operator,
            task.subtask,
            groups,
            self.graph.max_parallelism,
            generation,
        )


def _fencing(fences: list[Callable[[JobState], None]]) -> Callable[[JobState], None]:
    def fence(state: JobState) -> None:
        for one in fences:
            one(state)

    return fence
