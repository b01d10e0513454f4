"""A task's state for its operator: keyed state in a backend, and the operator's own lists.

The backend is made at the first use of keyed state, so stateless operators cost nothing in a
snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from abs_core.barriers.elements import TaskId
from abs_core.errors import ConfigError
from abs_core.model import job_key
from abs_embedded.state.codecs import JSON, Codec
from abs_embedded.state.contracts import (
    NewBackend,
    Snapshot,
    SnapshotStore,
    StateBackend,
    StateHandle,
    StateOwner,
)
from abs_embedded.state.operator_state import Contents, OperatorState, redistribute
from abs_embedded.state.states import ListState, MapState, ReducingState, ValueState
from abs_embedded.state.timers import Timers

K = TypeVar("K", Snapshot, StateHandle)
T = TypeVar("T")

_log = logging.getLogger("abs_embedded")


@dataclass(frozen=True, slots=True)
class TaskState(Generic[K]):
    """A task's state at a barrier: its logical copy (``Snapshot``), or durable (``StateHandle``)."""

    keyed: K | None
    lists: Contents


@dataclass(slots=True)
class TaskContext:
    """The context that an operator is made with; it then asks for every state that it has.

    Restored state that it did not ask for is ``unclaimed``: see ``Restore.drop_state``.

    Args:
        new_backend: makes the keyed state's backend.
        restored: the parts of all tasks that the operator had, in the order of their numbers;
            empty at a new start.
        source: the store of their blobs, if it is not ``store``.
        trust_pickles: allow values whose reading runs code, although others may write them.
        pickled: names of the states whose reading runs code.
        kept: the backend, once the operator has asked for keyed state.
    """

    task: TaskId
    parallelism: int
    place: StateOwner
    store: SnapshotStore
    new_backend: NewBackend
    restored: Sequence[TaskState[StateHandle]] = ()
    source: SnapshotStore | None = None
    trust_pickles: bool = False
    pickled: set[str] = field(default_factory=set)
    kept: StateBackend | None = None
    lists: OperatorState = field(init=False)

    def __post_init__(self) -> None:
        lists = [part.lists for part in self.restored]
        mine = redistribute(lists, self.task.subtask, self.parallelism)
        self.lists = OperatorState(mine, self._declare)
        if any(part.keyed is not None for part in self.restored):
            self.backend  # noqa: B018 - restored state is carried along even if nobody asks for it

    @property
    def backend(self) -> StateBackend:
        """The keyed state's backend; raises CorruptionError or ConfigError."""
        if self.kept is None:
            backend = self.new_backend(self.store, self.place)
            keyed = [part.keyed for part in self.restored if part.keyed is not None]
            if keyed:
                try:
                    backend.restore(keyed, self.source)
                except BaseException:
                    backend.close()
                    raise
            self.kept = backend
        return self.kept

    def value(self, name: str, codec: Codec[T] = JSON) -> ValueState[T]:
        return ValueState(self._keyed(name, codec), name, codec)

    def list(self, name: str, codec: Codec[T] = JSON) -> ListState[T]:
        return ListState(self._keyed(name, codec), name, codec)

    def map(self, name: str, keys: Codec[Any] = JSON, values: Codec[T] = JSON) -> MapState[Any, T]:
        return MapState(self._keyed(name, keys, values), name, keys, values)

    def reducing(
        self,
        name: str,
        codec: Codec[T],
        reduce: Callable[[T, T], T],
        reduce_arrays: Callable[[pa.Array, pa.Array], pa.Array] | None = None,
    ) -> ReducingState[T]:
        return ReducingState(self._keyed(name, codec), name, codec, reduce, reduce_arrays)

    def timers(self, name: str = "timers") -> Timers:
        """Event-time timers; ``operators.on_watermark`` takes out what is due."""
        return Timers(self.backend, name)

    def unclaimed(self) -> Sequence[str]:
        """Names of restored states that the operator has not asked for."""
        return [*(self.kept.unclaimed() if self.kept is not None else ()), *self.lists.unclaimed()]

    def drop_unclaimed(self) -> None:
        """Drop them from all later snapshots."""
        if self.kept is not None:
            for name in self.kept.unclaimed():
                self.kept.drop(name)
        for name in self.lists.unclaimed():
            self.lists.drop(name)

    def _keyed(self, name: str, *codecs: Codec[Any]) -> StateBackend:
        backend = self.backend
        self._declare(name, *codecs)
        return backend

    def _declare(self, name: str, *codecs: Codec[Any]) -> None:
        """Refuse values that could run their writer's code, before anything is read.

        Also without restored state: else the first restart would be refused, perhaps after days.
        """
        if not any(codec.runs_code for codec in codecs):
            return
        self.pickled.add(name)
        places = (self.store, self.source, self.kept)
        if self.trust_pickles or all(place is None or place.is_private() for place in places):
            return
        raise ConfigError(
            f"The state {name!r} of operator {self.task.operator} is stored as pickles in a place "
            "where others may be able to write: reading it would run their code.",
            remedy="use another codec (JSON, TEXT, ...); or keep snapshots in a folder that only this "
            "user can write to; or, if you trust all who can write there, give the job "
            "`trust_pickles=True`.",
        )

    def copy(self, checkpoint: int) -> TaskState[Snapshot]:
        keyed = None if self.kept is None else self.kept.snapshot(checkpoint)
        return TaskState(keyed, self.lists.snapshot())

    def decided(self, checkpoint: int) -> None:
        if self.kept is not None:
            self.kept.notify_complete(checkpoint)

    def aborted(self, checkpoint: int) -> None:
        if self.kept is not None:
            self.kept.notify_aborted(checkpoint)

    def close(self) -> None:
        if self.kept is not None:
            self.kept.close()


def settle_unclaimed(graph: str, contexts: Sequence[TaskContext], *, drop: bool) -> None:
    """Drop unclaimed state, or raise ConfigError without consent.

    A renamed state would otherwise silently begin anew.
    """
    unclaimed = sorted(
        {(entry.task.operator, name) for entry in contexts for name in entry.unclaimed()}
    )
    if not unclaimed:
        return
    names = ", ".join(f"{name!r} of operator {operator}" for operator, name in unclaimed)
    if not drop:
        raise ConfigError(
            f"The snapshot holds states that the code does not declare: {names}.",
            job=job_key(graph),
            remedy="declare them under their old names when the operator is made; or, to drop "
            "what they hold for good, allow `drop_state`.",
        )
    for context in contexts:
        context.drop_unclaimed()
    _log.warning("job %s drops states that its code does not declare: %s", graph, names)
