"""Builds tasks: wiring, operators, restored state. The same for every scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from abs_core.barriers.elements import Batch, TaskId
from abs_core.errors import AbsError, ConfigError
from abs_core.events import Observer, ignore
from abs_core.model import JobState
from abs_embedded.channel import PARTS, Tally
from abs_embedded.graph import Graph, Node
from abs_embedded.operators import Operator
from abs_embedded.partition import BROADCAST
from abs_embedded.plan import Wired, wire
from abs_embedded.sinks import SINK_STRIDE, SinkOperator
from abs_embedded.sources import SPLITS, SourceOperator, begin
from abs_embedded.state.codecs import TEXT
from abs_embedded.state.operator_state import OperatorState
from abs_embedded.task import Context, Task


@dataclass(frozen=True, slots=True)
class Part:
    """A task's part of a snapshot.

    Args:
        state: for the factory of contexts.
        log: data that was in the channels, as (input port, batch).
    """

    state: Any
    log: Sequence[tuple[int, Batch]] = ()


Parts = Mapping[str, Sequence[Part]]
"""By operator, of all its tasks in order."""


Contexts = Callable[[Node, TaskId, Sequence[Part]], Any]


@dataclass(frozen=True, slots=True)
class AttemptSettings:
    """How tasks are made in one attempt of a run.

    Args:
        state: the register's; its generation is in the handles' names.
        first: number of the attempt's first checkpoint.
        sinks: ids of all sinks of the job, in the order of their partitions.
        capacity: of a channel, in elements; ``rows``: in rows.
        count: count everything in flight; stopping the world needs it.
        task: makes one of its id, operator, context, inputs, outputs and loop.
        events: is told of the sinks' pre-commits.
    """

    graph: Graph
    state: JobState
    first: int
    sinks: Sequence[str]
    contexts: Contexts
    capacity: int
    rows: int
    count: bool
    task: Callable[..., Task]
    events: Observer = ignore


@dataclass(frozen=True, slots=True)
class Assembly:
    """The tasks of a region, ready to step, and the count of data in its channels.

    ``close`` closes every operator and then its state, each once, also if another one fails to; but
    nothing of tasks that are ``left``.
    """

    tasks: list[Task]
    in_flight: Tally
    close: Callable[[], None]
    left: set[TaskId]


def assemble(how: AttemptSettings, operators: frozenset[str], parts: Parts) -> Assembly:
    """Build and restore the tasks of some operators: all, or nothing is left open.

    Raises ConfigError or CorruptionError if the state cannot be restored.
    """
    logged = any(part.log for id_ in operators for part in parts.get(id_, ()))
    draining = Tally() if logged else None
    wired, in_flight = wire(
        how.graph,
        operators,
        how.capacity,
        count=how.count,
        rows=how.rows,
        draining=draining,
    )
    tasks: list[Task] = []
    left: set[TaskId] = set()
    with ExitStack() as opened:
        contexts: list[Context] = []
        for place in wired:
            with _named(how, place):
                restored = parts.get(place.id.operator, ())
                contexts.append(how.contexts(place.node, place.id, restored))
            opened.callback(_unless_left, left, place.id, contexts[-1].close)
        held = _begin_sources(how, wired, contexts)
        for place, context in zip(wired, contexts, strict=True):
            with _named(how, place):
                operator = _operator(how, place, context)
            opened.callback(_unless_left, left, place.id, operator.close)
            task = how.task(
                place.id, operator, context, place.inputs, place.outputs, loop=place.loop
            )
            task.begin(_replay(place, parts.get(place.id.operator, ())))
            task.waits = task.drained = place.id.operator in held
            tasks.append(task)
        if draining is not None:
            _drain_first(tasks, draining)
        return Assembly(tasks, in_flight, opened.pop_all().close, left)


def _unless_left(left: set[TaskId], id_: TaskId, close: Callable[[], None]) -> None:
    if id_ not in left:
        close()


@contextmanager
def _named(how: AttemptSettings, place: Wired) -> Iterator[None]:
    """Errors name the task and the job."""
    try:
        yield
    except AbsError as error:
        error.by(str(place.id), how.state.job)
        raise


def _begin_sources(
    how: AttemptSettings, wired: Sequence[Wired], contexts: Sequence[Context]
) -> frozenset[str]:
    """Give sources their positions; returns those that wait until a checkpoint holds them."""
    states: dict[str, list[OperatorState]] = {}
    for place, context in zip(wired, contexts, strict=True):
        if place.node.source is not None:
            states.setdefault(place.id.operator, []).append(context.lists)
    held = set()
    for id_, lists in states.items():
        with _named(how, next(place for place in wired if place.id.operator == id_)):
            if begin(how.graph.nodes[id_], lists):
                held.add(id_)
    return frozenset(held)


def _drain_first(tasks: Sequence[Task], draining: Tally) -> None:
    """Let sources wait until the snapshot's channel data is processed and decided.

    Else a new record could overtake an older one of its key: after rescaling, its split or key may
    belong to another task, and its path may lead to another task of the sink. Handles of one
    decision have no order: so a checkpoint comes between, for which the coordinator looks at
    ``drained``.
    """
    sources = [task for task in tasks if not task.inputs]

    def drained() -> None:
        for channel in (input_.channel for task in tasks for input_ in task.inputs):
            channel.tallies = tuple(t for t in channel.tallies if t is not draining)
        for source in sources:
            source.drained = True
            source.wake.set()

    for source in sources:
        source.waits = True
    draining.woken.append(drained)
    if not draining.count:  # all of it was in loops
        drained()


def _operator(how: AttemptSettings, wired: Wired, context: Context) -> Operator:
    node, subtask = wired.node, wired.id.subtask
    if node.sink is not None:
        partition = how.sinks.index(node.id) * SINK_STRIDE + subtask
        return SinkOperator(node.sink, how.state, partition, how.first, how.events)
    if node.source is not None:
        positions, part = context.lists.list(SPLITS, TEXT), max(1, how.rows // PARTS)
        return SourceOperator(node.source, positions, node.event_time, part)
    assert node.make is not None, f"{node.id} has no operator"
    return node.make(context)


def _replay(wired: Wired, parts: Sequence[Part]) -> list[tuple[int, Batch]]:
    """This task's share of the logs: its own; after rescaling, by key or all of an old task's.

    So the rest of a key stays in its order. Raises ConfigError for broadcast data, which cannot be
    redistributed: each old task has a copy.
    """
    node, subtask = wired.node, wired.id.subtask
    if len(parts) == node.parallelism:
        return list(parts[subtask].log)
    share = []
    by_port = {edge.port: edge.partition for edge in node.inputs}
    logs = ((old, *entry) for old, part in enumerate(parts) for entry in part.log)
    for old, port, batch in logs:
        if by_port[port] is BROADCAST:
            raise ConfigError(
                f"Operator {node.id} cannot be rescaled from this snapshot: it holds broadcast data.",
                remedy="continue with the old parallelism, or from an aligned snapshot.",
            )
        if by_port[port].keyed:
            dealt = by_port[port].split(batch, node.parallelism, 0, old)
            share += [(port, mine) for target, mine in dealt if target == subtask]
        elif old % node.parallelism == subtask:
            share.append((port, batch))
    return share
