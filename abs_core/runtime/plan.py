"""From a graph to what runs: loops, regions, and the wiring of tasks by channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from abs_core.errors import ConfigError
from abs_core.runtime.channel import UNBOUNDED, Channel, Tally
from abs_core.runtime.elements import TaskId
from abs_core.runtime.graph import Edge, Graph, Node, check
from abs_core.runtime.partition import Forward
from abs_core.runtime.task import Input, Output


@dataclass(slots=True)
class Wired:
    """A task's place among the channels, before it has an operator."""

    id: TaskId
    node: Node
    inputs: list[Input]
    outputs: list[Output]
    loop: Tally | None


@dataclass(frozen=True, slots=True)
class Wiring:
    """All tasks of some operators, in topological order but for back-edges."""

    tasks: list[Wired]
    channels: list[Channel]
    loops: list[Tally]
    in_flight: Tally


def loops(graph: Graph) -> list[frozenset[str]]:
    """The operators of each loop; nested and overlapping loops are one.

    An operator is in the loop of a back-edge if it can be reached from the head and can reach the tail:
    what the static depth-first search of algorithm 2 finds.

    Raises:
        ConfigError: there is a cycle without a back-edge.
    """
    topological(graph)
    found: list[frozenset[str]] = []
    for node in graph.nodes.values():
        for edge in node.inputs:
            if not edge.back:
                continue
            loop = _reach(graph, node.id, forward=True) & _reach(graph, edge.sender, forward=False)
            for other in [o for o in found if o & loop]:
                found.remove(other)
                loop |= other
            found.append(frozenset(loop))
    return found


def regions(graph: Graph) -> list[frozenset[str]]:
    """The connected parts of the graph: a failure in one takes nothing with it but that part."""
    left = set(graph.nodes)
    found = []
    while left:
        region, border = set(), {min(left)}
        while border:
            region |= border
            border = {
                neighbour
                for edge, node in _edges(graph)
                for neighbour in (edge.sender, node.id)
                if {edge.sender, node.id} & border
            } - region
        found.append(frozenset(region))
        left -= region
    return sorted(found, key=min)


def topological(graph: Graph) -> list[Node]:
    """Senders before receivers, back-edges left out.

    Raises:
        ConfigError: there is a cycle without a back-edge.
    """
    ordered: list[Node] = []
    placed: set[str] = set()
    while len(ordered) < len(graph.nodes):
        ready = [
            node
            for node in graph.nodes.values()
            if node.id not in placed and all(e.back or e.sender in placed for e in node.inputs)
        ]
        if not ready:
            raise ConfigError("The graph has a cycle that is no loop: use `iterate` for loops.")
        ordered += ready
        placed |= {node.id for node in ready}
    return ordered


def wire(graph: Graph, operators: frozenset[str], capacity: int, *, count: bool) -> Wiring:
    """Lay the channels of some operators: a whole graph, or a region of it.

    Args:
        capacity: elements that a channel holds before its producer has to wait.
        count: whether all that is in flight is to be counted; stopping the world needs it.
    """
    check(graph)
    in_flight = Tally()
    nodes = [node for node in topological(graph) if node.id in operators]
    tallies = [(loop, Tally()) for loop in loops(graph) if loop <= operators]
    tasks: dict[TaskId, Wired] = {}
    for node in nodes:
        tally = next((t for loop, t in tallies if node.id in loop and _is_head(node)), None)
        for subtask in range(node.parallelism):
            id_ = TaskId(node.id, subtask)
            tasks[id_] = Wired(id_, node, [], [], tally)
    channels: list[Channel] = []
    for edge, node in _edges(graph):
        if node.id in operators:
            counted = (in_flight,) if count else ()
            channels += _connect(tasks, graph, edge, node, capacity, counted, tallies)
    return Wiring(list(tasks.values()), channels, [t for _, t in tallies], in_flight)


def _connect(
    tasks: dict[TaskId, Wired],
    graph: Graph,
    edge: Edge,
    node: Node,
    capacity: int,
    counted: tuple[Tally, ...],
    tallies: list[tuple[frozenset[str], Tally]],
) -> list[Channel]:
    """The channels of one edge: from each task of the sender to each of the receiver, or to its own."""
    sender = graph.nodes[edge.sender]
    inside = tuple(t for loop, t in tallies if {edge.sender, node.id} <= loop)
    entered = next((t for loop, t in tallies if node.id in loop and edge.sender not in loop), None)
    laid = []
    for left in range(sender.parallelism):
        output = Output(edge.partition, [])
        own = isinstance(edge.partition, Forward)
        for right in [left] if own else range(node.parallelism):
            channel = Channel(UNBOUNDED if edge.back else capacity, counted + inside)
            if entered is not None:
                entered.add()
            tasks[TaskId(node.id, right)].inputs.append(
                Input(channel, edge.port if not edge.back else 1, edge.back, entered)
            )
            output.channels.append(channel)
            laid.append(channel)
        tasks[TaskId(sender.id, left)].outputs.append(output)
    return laid


def _is_head(node: Node) -> bool:
    return any(edge.back for edge in node.inputs)


def _edges(graph: Graph) -> list[tuple[Edge, Node]]:
    return [(edge, node) for node in graph.nodes.values() for edge in node.inputs]


def _reach(graph: Graph, start: str, *, forward: bool) -> set[str]:
    steps: Callable[[Edge, Node], tuple[str, str]] = (
        (lambda e, n: (e.sender, n.id)) if forward else (lambda e, n: (n.id, e.sender))
    )
    reached, border = {start}, {start}
    while border:
        border = {
            to
            for edge, node in _edges(graph)
            if not edge.back
            for came, to in [steps(edge, node)]
            if came in border
        } - reached
        reached |= border
    return reached
