"""Plans a graph: loops, regions, and the wiring of tasks by channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from abs_core.barriers.elements import TaskId
from abs_core.errors import AbsError
from abs_core.model import job_key
from abs_embedded.channel import PARTS, UNBOUNDED, Channel, Tally
from abs_embedded.graph import Edge, Graph, Node, check
from abs_embedded.partition import FORWARD
from abs_embedded.schemas import Schema
from abs_embedded.task import Input, Output


@dataclass(slots=True)
class Wired:
    """A task's channels, before it has an operator."""

    id: TaskId
    node: Node
    inputs: list[Input]
    outputs: list[Output]
    loop: Tally | None


def loops(graph: Graph) -> list[frozenset[str]]:
    """The operators of each loop; nested and overlapping loops are one.

    An operator is in the loop of a back-edge if it can be reached from the head and can reach the
    tail: what the static depth-first search of algorithm 2 finds.
    """
    groups: list[frozenset[str]] = []
    for node in graph.nodes.values():
        for edge in node.inputs:
            if not edge.back:
                continue
            ahead = [(e.sender, n.id) for e, n in _edges(graph.nodes.values()) if not e.back]
            behind = [(receiver, sender) for sender, receiver in ahead]
            loop = _reach(node.id, ahead) & _reach(edge.sender, behind)
            for other in [o for o in groups if o & loop]:
                groups.remove(other)
                loop |= other
            groups.append(frozenset(loop))
    return groups


def regions(graph: Graph) -> list[frozenset[str]]:
    """The connected parts of the graph; a failure affects only its own part."""
    pairs = [(edge.sender, node.id) for edge, node in _edges(graph.nodes.values())]
    pairs += [(receiver, sender) for sender, receiver in pairs]
    return sorted({frozenset(_reach(id_, pairs)) for id_ in graph.nodes}, key=min)


def wire(
    graph: Graph,
    operators: frozenset[str],
    capacity: int,
    *,
    count: bool,
    rows: int = UNBOUNDED,
    draining: Tally | None = None,
) -> tuple[list[Wired], Tally]:
    """Create the channels of some operators: of a whole graph, or of a region.

    Args:
        capacity: elements that a channel holds before its producer has to wait.
        count: count everything in flight; stopping the world needs it.
        rows: the same in rows: a half less, for the producer's next element.
        draining: counts what is in flight outside of loops: inside, it may never end.

    Returns:
        all tasks, senders before receivers except for back-edges; the count of what is in flight.
    """
    check(graph)
    in_flight = Tally()
    tallies = [(loop, Tally()) for loop in loops(graph) if loop <= operators]
    counted = [*tallies, (operators, in_flight)] if count else tallies
    nodes = [node for node in graph.nodes.values() if node.id in operators]
    tasks: dict[TaskId, Wired] = {}
    for node in nodes:
        is_head = any(edge.back for edge in node.inputs)
        tally = next((t for loop, t in tallies if node.id in loop and is_head), None)
        for id_ in (TaskId(node.id, subtask) for subtask in range(node.parallelism)):
            tasks[id_] = Wired(id_, node, [], [], tally)
    for edge, node in _edges(nodes):
        inside = tuple(t for part, t in counted if {edge.sender, node.id} <= part)
        if draining and not any({edge.sender, node.id} <= loop for loop, _ in tallies):
            inside += (draining,)
        entered = next(
            (t for loop, t in tallies if node.id in loop and edge.sender not in loop), None
        )
        for left in range(graph.nodes[edge.sender].parallelism):
            output = Output(edge.partition, [])
            tasks[TaskId(edge.sender, left)].outputs.append(output)
            own = edge.partition is FORWARD
            for right in [left] if own else range(node.parallelism):
                most = (UNBOUNDED, UNBOUNDED) if edge.back else (capacity, rows - rows // PARTS + 1)
                channel = Channel(most[0], inside, most[1])
                if entered is not None:
                    entered.add()
                output.channels.append(channel)
                entry = Input(channel, edge.port, edge.back, entered)
                tasks[TaskId(node.id, right)].inputs.append(entry)
    return list(tasks.values()), in_flight


def _edges(nodes: Iterable[Node]) -> list[tuple[Edge, Node]]:
    return [(edge, node) for node in nodes for edge in node.inputs]


def _reach(start: str, pairs: Sequence[tuple[str, str]]) -> set[str]:
    """Everything reachable from ``start`` by these steps, including itself."""
    reached, border = set[str](), {start}
    while border:
        reached |= border
        border = {to for came, to in pairs if came in border} - reached
    return reached


def check_schemas(graph: Graph) -> None:
    """Raise SchemaError for folds that the columns' types do not allow, before anything runs."""
    schemas: dict[str, Schema] = {}
    for node in graph.nodes.values():
        try:
            schemas[node.id] = _emitted(node, schemas)
        except AbsError as error:
            error.by(node.id, job_key(graph.name))
            raise


def _emitted(node: Node, schemas: dict[str, Schema]) -> Schema:
    if node.source is not None:
        try:
            schema: Schema = node.source.schema
        except AbsError:
            schema = None  # it cannot be asked now, or has no data yet: its reader says so
        return schema
    # A back-edge comes from an operator that is not known yet.
    return node.schemas([schemas.get(edge.sender) for edge in node.inputs])
