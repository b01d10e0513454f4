"""Puts tasks together: wiring, operators, what a snapshot holds. The same for every scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from abs_core.errors import ConfigError
from abs_core.model import JobState
from abs_core.runtime.alignment import Way
from abs_core.runtime.channel import Channel, Tally
from abs_core.runtime.elements import Batch, TaskId
from abs_core.runtime.graph import Graph, Node
from abs_core.runtime.operators import Operator
from abs_core.runtime.partition import Broadcast
from abs_core.runtime.plan import Wired, wire
from abs_core.runtime.sinks import SINK_STRIDE, SinkOperator
from abs_core.runtime.sources import SourceOperator, first_entries, shared_out
from abs_core.runtime.task import Context, Copy, Task
from abs_core.state.codecs import TEXT
from abs_core.state.operator_state import OperatorState


@dataclass(frozen=True, slots=True)
class Part:
    """What a snapshot holds of one task.

    Args:
        state: as the maker of contexts understands it.
        log: data that was in the channels, as (input port, batch).
    """

    state: Any
    log: Sequence[tuple[int, Batch]] = ()


Parts = Mapping[str, Sequence[Part]]
"""By operator, of all its tasks in order."""


class OwnContext(Context, Protocol):
    """A context that sources and sinks can hook into."""

    is_new: bool
    lists: OperatorState
    at_barrier: Callable[[int], Any]
    at_decision: Callable[[int], None]


Contexts = Callable[[Node, TaskId, Sequence[Part]], Any]


@dataclass(frozen=True, slots=True)
class Crewing:
    """How tasks are made in one attempt of a run.

    Args:
        state: the register's; its generation is in the handles' names.
        first: number of the first checkpoint that this attempt takes part in.
        sinks: ids of all sinks of the job, in the order in which they have their partitions.
        capacity: of a channel, in elements.
        task: the class of the tasks; the simulation's planted bugs are in another one.
    """

    graph: Graph
    way: Way
    state: JobState
    first: int
    sinks: Sequence[str]
    contexts: Contexts
    persist: Callable[[Copy, bool], None]
    ended: Callable[[TaskId], None]
    observe: Callable[[str, TaskId, int], None] = lambda what, task, checkpoint: None
    capacity: int = 16
    task: type[Task] = Task


@dataclass(frozen=True, slots=True)
class Assembly:
    """The tasks of a region, ready to step."""

    tasks: list[Task]
    channels: list[Channel]
    loops: list[Tally]
    in_flight: Tally


def assemble(crew: Crewing, operators: frozenset[str], parts: Parts) -> Assembly:
    """Build and restore the tasks of some operators.

    Raises:
        ConfigError, CorruptionError: what is to be restored cannot be.
    """
    wiring = wire(crew.graph, operators, crew.capacity, count=crew.way.halts)
    tasks = []
    # Asked once for all tasks of a source: asked again, it may know of more.
    begins: dict[str, list[list[str]]] = {}
    for wired in wiring.tasks:
        restored = parts.get(wired.id.operator, ())
        context = crew.contexts(wired.node, wired.id, restored)
        task = crew.task(
            wired.id,
            _operator(crew, wired, context, begins),
            context,
            wired.inputs,
            wired.outputs,
            crew.way,
            crew.persist,
            wired.loop,
            crew.observe,
            crew.ended if wired.node.sink is not None else _nobody,
        )
        task.begin(_replay(wired, restored))
        tasks.append(task)
    return Assembly(tasks, wiring.channels, wiring.loops, wiring.in_flight)


def _operator(
    crew: Crewing, wired: Wired, context: OwnContext, begins: dict[str, list[list[str]]]
) -> Operator:
    node = wired.node
    if node.source is not None:
        return _source(node, wired.id.subtask, context, begins)
    if node.sink is not None:
        partition = crew.sinks.index(node.id) * SINK_STRIDE + wired.id.subtask
        sink = SinkOperator(node.sink, crew.state, partition, crew.first)
        context.at_barrier, context.at_decision = sink.pre_commit, sink.decided
        return sink
    assert node.make is not None, f"{node.id} has no operator"
    return node.make(context)


def _source(
    node: Node, subtask: int, context: OwnContext, begins: dict[str, list[list[str]]]
) -> SourceOperator:
    assert node.source is not None
    positions = context.lists.list("splits", TEXT)
    if context.is_new:
        if node.id not in begins:
            entries = first_entries(node.source, bounded=node.bounded)
            begins[node.id] = shared_out(entries, node.parallelism)
        positions.put(begins[node.id][subtask])
    source = SourceOperator(node.source, positions.get(), node.event_time)

    def note(checkpoint: int) -> tuple[()]:
        positions.put(source.entries())
        return ()

    context.at_barrier = note
    return source


def _replay(wired: Wired, parts: Sequence[Part]) -> list[tuple[int, Batch]]:
    """This task's share of the logs: its own; after rescaling, as the channels would deal it out.

    Raises:
        ConfigError: what was broadcast cannot be dealt out: each old task has a copy of it.
    """
    node, subtask = wired.node, wired.id.subtask
    if len(parts) == node.parallelism:
        return list(parts[subtask].log)
    share = []
    by_port = {edge.port if not edge.back else 1: edge.partition for edge in node.inputs}
    for turn, (port, batch) in enumerate(entry for part in parts for entry in part.log):
        if isinstance(by_port[port], Broadcast):
            raise ConfigError(
                f"Operator {node.id} cannot be rescaled from this snapshot: it holds broadcast data.",
                remedy="go on with the old parallelism, or from an aligned snapshot.",
            )
        if by_port[port].keyed:
            dealt = by_port[port].split(batch, node.parallelism, 0, turn)
            share += [(port, mine) for target, mine in dealt if target == subtask]
        elif turn % node.parallelism == subtask:
            share.append((port, batch))
    return share


def _nobody(task: TaskId) -> None:
    """Only the end of a sink's input is of interest."""
