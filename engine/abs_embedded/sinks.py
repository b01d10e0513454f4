"""The operator of a sink: one writer per epoch, pre-committed at the barrier.

Takes any ``abs_core.contracts.Sink``, such as Spark's. A handle stays on the sink's list until it
is known to be decided; so a failed checkpoint's handles join the next one's decision.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from abs_core.barriers.elements import Batch
from abs_core.contracts import Sink, Task, Writer
from abs_core.errors import ConfigError
from abs_core.events import Observer, PreCommitted, ignore
from abs_core.model import Committable, HandleName, JobState
from abs_core.sinkmap import check_names
from abs_embedded.operators import Emit, Operator
from abs_embedded.task import Task as RunningTask


@dataclass(frozen=True, slots=True)
class Sinks:
    """Sinks by their names, for an engine that unfolds them: each is a sink of the job's one decision.

    It is no ``Sink`` itself. A ``Writer`` has one handle, and one handle cannot stand for several: the
    sweep asks of each handle of each target whether a decision names it.

    Raises:
        OptionError: there is none, or one of several has no name.
    """

    by_name: Mapping[str, Sink]

    def __post_init__(self) -> None:
        check_names(list(self.by_name))


def unfolded(id_: str, sink: Sink | Sinks) -> Mapping[str, Sink]:
    """The sinks by their ids: ``ID.NAME`` for each of several."""
    if isinstance(sink, Sinks):
        return {f"{id_}.{name}": one for name, one in sink.by_name.items()}
    return {id_: sink}


SINK_STRIDE = 1 << 16
"""Handles of the n-th sink of a graph have partitions from n * SINK_STRIDE on."""


class SinkOperator(Operator):
    """Writes one task's share.

    Args:
        partition: of the handles' names; unique among the tasks of all sinks.
        first: the checkpoint with which the present epoch ends, or an earlier undecided one.
        events: is told of each pre-commit.
    """

    def __init__(
        self, sink: Sink, state: JobState, partition: int, first: int, events: Observer = ignore
    ) -> None:
        self._sink = sink
        self._events = events
        self._began = 0.0
        self._task = Task(
            state.register,
            state.job,
            state.generation,
            first,
            partition,
            attempt="",
            frontier=state.frontier,
        )
        self._writer: Writer | None = None
        self._pending: list[Committable] = []

    def on_batch(self, port: int, batch: Batch, emit: Emit) -> None:
        if self._writer is None:
            self._began = time.monotonic()
            self._writer = self._sink.writer(replace(self._task, attempt=secrets.token_hex(4)))
        self._writer.write(batch)

    def pre_commit(self, checkpoint: int) -> tuple[Committable, ...]:
        """End the epoch; returns all handles that are not known to be decided."""
        # One that fails to is still this operator's: ``close`` aborts it.
        committable = None if self._writer is None else self._writer.pre_commit()
        self._writer = None
        if committable is not None:
            self._pending.append(committable)
            name, seconds = committable.handle, time.monotonic() - self._began
            self._events(
                PreCommitted(
                    job=name.job,
                    epoch=name.epoch,
                    partition=name.partition,
                    rows=committable.rows,
                    seconds=seconds,
                    handle=str(name),
                )
            )
        self._task = replace(self._task, epoch=checkpoint + 1)
        return tuple(self._pending)

    @property
    def pending(self) -> Sequence[Committable]:
        """Handles that are not known to be decided."""
        return self._pending

    def decided(self, checkpoint: int) -> None:
        """The decision of ``checkpoint`` names all handles up to it."""
        self._task = replace(self._task, frontier=checkpoint)
        self._pending = [c for c in self._pending if c.handle.epoch > checkpoint]

    def close(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def undecided(tasks: Iterable[RunningTask]) -> list[HandleName]:
    """Pre-committed handles of tasks that are not known to be decided."""
    sinks = (task.operator for task in tasks if isinstance(task.operator, SinkOperator))
    return [committable.handle for sink in sinks for committable in sink.pending]


def check_decided(state: JobState, had: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Refuse a graph without a sink that a decision still has to be committed to.

    Raises ConfigError with the sink, the checkpoint and a handle.

    Args:
        state: of the job's register, before the run changes it.
        had: all sinks the job has had, and their targets; see ``recovery.sinks_before``.
        present: the graph's sinks and their targets.
    """
    order = list(had.items())
    for decision in state.open:
        for committable in decision.committables:
            number = sink_of(committable.handle)
            id_, target = order[number] if number < len(order) else (f"number {number}", "")
            if id_ not in present or present[id_] != (target or present[id_]):
                raise taken_out(id_, committable, decision.epoch)


def taken_out(sink: str, committable: Committable, epoch: int | None = None) -> ConfigError:
    return ConfigError(
        f"The sink {sink} was removed, or given another target, before it had committed the "
        f"decided rows: {committable.rows} or more.",
        job=committable.handle.job,
        epoch=epoch,
        handle=str(committable.handle),
        remedy="run the graph with that sink once more, until it has committed; then change it.",
    )


def sink_of(handle: HandleName) -> int:
    return handle.partition // SINK_STRIDE
