"""The graph that a user writes: sources, operators, loops and sinks, each with a stable id.

Snapshots keep state under these ids: keep them, and the code may change. ``plan`` turns the graph
into tasks and channels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from abs_core.barriers.elements import Batch
from abs_core.contracts import Sink
from abs_core.errors import ConfigError, OptionError
from abs_core.source import Source
from abs_embedded.context import TaskContext
from abs_embedded.keyed import Process, ProcessFunction, Reducing, TimerFunction
from abs_embedded.operators import Operator, Row, Stateless, event_times, passing
from abs_embedded.partition import BROADCAST, FORWARD, REBALANCE, ByKey, Partition
from abs_embedded.schemas import Schemas, checked, declared, folding, same, unknown
from abs_embedded.sinks import Sinks, unfolded
from abs_embedded.state.codecs import INT64, JSON, ArrayCodec, Codec
from abs_embedded.state.keygroups import check_parallelism
from abs_embedded.state.savepoint import OPERATOR_ID

Mapping = Callable[[pa.RecordBatch], pa.RecordBatch]
Predicate = Callable[[pa.RecordBatch], pa.Array]


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from one operator to input ``port`` of another; ``back`` closes a loop."""

    sender: str
    port: int
    partition: Partition
    back: bool = False


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event time's column, and how late a record may be.

    Args:
        column: integer or timestamp; its integer value is the time, in its own unit.
        lateness: distance of the watermark from the highest time seen, in the same unit.
        idle_after: seconds without data after which an endless split does not hold back event time,
            until it has data again, which may then be late. None: it always does.
        clock: in seconds.
    """

    column: str
    lateness: int = 0
    idle_after: float | None = 60.0
    clock: Callable[[], float] = time.monotonic

    def highest(self, batch: Batch) -> int | None:
        """The latest time in the batch, if any."""
        latest: int | None = pc.max(event_times(batch, self.column)).as_py()
        return latest


@dataclass(slots=True)
class Node:
    """One operator of the graph.

    Args:
        kind: for people and for the plan.
        schemas: its output's schema by those of its inputs, as far as known.
        make: builds the operator of one task from its context.
        shares: the source or sink, if it is one.
    """

    id: str
    kind: str
    parallelism: int
    make: Callable[[Any], Operator] | None = None
    inputs: list[Edge] = field(default_factory=list)
    source: Source | None = None
    event_time: EventTime | None = None
    bounded: bool = True
    sink: Sink | None = None
    schemas: Schemas = unknown


class Graph:
    """A dataflow. ``nodes`` has senders before receivers, except for back-edges.

    Raises ConfigError for more tasks than key groups, or too many key groups.

    Args:
        name: of the job.
        parallelism: default of an operator.
        max_parallelism: number of key groups; fixed for the life of the job's state.
    """

    def __init__(self, name: str, *, parallelism: int = 1, max_parallelism: int = 128) -> None:
        check_parallelism(parallelism, max_parallelism)
        self.name = name
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.nodes: dict[str, Node] = {}

    def source(
        self,
        id_: str,
        source: Source,
        *,
        parallelism: int | None = None,
        event_time: EventTime | None = None,
        bounded: bool = True,
    ) -> Stream:
        """Read a source: ``bounded`` up to its end at the job's first start, else for ever."""
        node = Node(id_, "source", self.parallelism if parallelism is None else parallelism)
        node.source, node.event_time, node.bounded = source, event_time, bounded
        return self.add(node)

    def add(self, node: Node) -> Stream:
        """Add an operator.

        Raises OptionError for an id that is taken or invalid, a wrong parallelism, or an input of
        another graph.
        """
        if not OPERATOR_ID.fullmatch(node.id) or node.id in self.nodes:
            raise OptionError(
                f"The operator id {node.id!r} is used twice, or is not 1 to 100 letters, digits, "
                "'.', '_' and '-'.",
                remedy="give each operator an id of its own; its state is kept under it.",
            )
        if not 1 <= node.parallelism <= self.max_parallelism:
            raise OptionError(
                f"Operator {node.id} has parallelism {node.parallelism}; it must lie between 1 and "
                f"the graph's max_parallelism, {self.max_parallelism}.",
                remedy="give it a parallelism between them.",
            )
        strangers = [edge.sender for edge in node.inputs if edge.sender not in self.nodes]
        if strangers:
            raise OptionError(
                f"Operator {node.id} reads from {strangers[0]}, which is not in this graph.",
                remedy="give it only streams of its own graph.",
            )
        self.nodes[node.id] = node
        return Stream(self, node.id)


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of one operator, and its partitioning."""

    graph: Graph
    id: str
    partition: Partition | None = None

    def map(
        self, id_: str, function: Mapping, *, schema: pa.Schema | None = None, **at: int
    ) -> Stream:
        """Transform batch by batch; a given ``schema`` is checked before the job runs."""

        def mapped(batch: pa.RecordBatch) -> tuple[pa.RecordBatch]:
            out = function(batch)
            return (out if schema is None else checked(schema, out),)

        return self.stateless(id_, "map", mapped, **at).of(declared(schema))

    def filter(self, id_: str, predicate: Predicate, **at: int) -> Stream:
        """Keep the rows for which the predicate's column is true."""

        def kept(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            rows = batch.filter(predicate(batch))
            return [rows] if rows.num_rows else []

        return self.stateless(id_, "filter", kept, **at).of(same)

    def flat_map(
        self, id_: str, function: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]], **at: int
    ) -> Stream:
        """Transform a batch to any number of batches."""
        return self.stateless(id_, "flat_map", function, **at)

    def flat_map_rows(
        self, id_: str, function: Callable[[Row], Iterable[Row]], schema: pa.Schema, **at: int
    ) -> Stream:
        """Transform a row to rows of ``schema``: convenient, and slow."""

        def by_row(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            # Copies, as a generator may yield one object again and again.
            rows = [{**out} for row in batch.to_pylist() for out in function(row)]
            return [pa.RecordBatch.from_pylist(rows, schema=schema)] if rows else []

        return self.flat_map(id_, by_row, **at).of(declared(schema))

    def stateless(
        self, id_: str, kind: str, function: Callable[[Batch], Iterable[Batch]], **at: int
    ) -> Stream:
        return self.apply(id_, kind, lambda context: Stateless(function), **at)

    def key_by(self, *columns: str) -> Stream:
        """Send rows with the same key to the same task of the next operator."""
        return Stream(self.graph, self.id, ByKey(columns, self.graph.max_parallelism))

    def rebalance(self) -> Stream:
        """Send batches in turn to all tasks of the next operator."""
        return Stream(self.graph, self.id, REBALANCE)

    def broadcast(self) -> Stream:
        """Send every batch to every task of the next operator."""
        return Stream(self.graph, self.id, BROADCAST)

    def union(self, id_: str, *others: Stream, **at: int) -> Stream:
        """All rows of several streams, in no order among them."""
        return self.apply(id_, "union", passing, *others, **at).of(same)

    def apply(
        self,
        id_: str,
        kind: str,
        make: Callable[[Any], Operator],
        *others: Stream,
        parallelism: int | None = None,
    ) -> Stream:
        """Any operator, over this and other streams as its inputs 0, 1, ..."""
        streams = (self, *others)
        default = self.graph.nodes[self.id].parallelism
        if any(isinstance(s.partition, ByKey) for s in streams):
            default = max(default, self.graph.parallelism)
        node = Node(id_, kind, default if parallelism is None else parallelism, make)
        node.inputs = [s.edge_to(port, node.parallelism) for port, s in enumerate(streams)]
        return self.graph.add(node)

    def reduce(
        self,
        id_: str,
        fold: str,
        column: str | None = None,
        *,
        out: str | None = None,
        codec: ArrayCodec[Any] = INT64,
        **at: int,
    ) -> Stream:
        """Fold a column by key: ``sum``, ``count``, ``min`` or ``max``; emits each key's new value."""
        key, name = self.key(), out or fold
        return self.apply(
            id_, "reduce", lambda c: Reducing(c, key, fold, column, name, codec), **at
        ).of(folding(key, fold, column, codec.type, [name]))

    def process(
        self,
        id_: str,
        function: ProcessFunction,
        schema: pa.Schema,
        states: Callable[[TaskContext], dict[str, Any]],
        *,
        on_timer: TimerFunction | None = None,
        **at: int,
    ) -> Stream:
        """A function over rows with keyed state and event-time timers; see ``keyed.Process``."""
        key = self.key()
        return self.apply(
            id_, "process", lambda c: Process(c, key, function, schema, states, on_timer), **at
        ).of(declared(schema))

    def window(
        self,
        id_: str,
        time: str,
        size: int,
        fold: str,
        column: str | None = None,
        *,
        slide: int | None = None,
        out: str | None = None,
        **at: int,
    ) -> Stream:
        """Tumbling windows of event time, or sliding ones with ``slide``; see ``windows.Window``."""
        from abs_embedded.windows import Window

        key, every, name = self.key(), size if slide is None else slide, out or fold
        return self.apply(
            id_, "window", lambda c: Window(c, key, time, size, every, fold, column, name), **at
        ).of(folding(key, fold, column, pa.int64(), ["window_start", "window_end", name]))

    def join(
        self,
        id_: str,
        other: Stream,
        merge: Callable[[Row, Row], Row],
        schema: pa.Schema,
        *,
        codec: Codec[Row] = JSON,
        **at: int,
    ) -> Stream:
        """Inner join by key with another keyed stream; see ``joins.Join``."""
        from abs_embedded.joins import Join

        keys = (self.key(), other.key())
        if len(keys[0]) != len(keys[1]):
            raise OptionError(
                f"The join {id_} is {self.partition} on the left and {other.partition} on the right.",
                remedy="key both sides by as many columns, in the same order.",
            )
        joined = self.apply(id_, "join", lambda c: Join(c, keys, merge, schema, codec), other, **at)
        return joined.of(declared(schema))

    def of(self, schemas: Schemas) -> Stream:
        """Set the output's schema by those of the inputs."""
        self.graph.nodes[self.id].schemas = schemas
        return self

    def key(self) -> Sequence[str]:
        """The key's columns; raises ConfigError if the stream is not keyed."""
        if not isinstance(self.partition, ByKey):
            raise ConfigError(
                f"The stream from {self.id} has no key.", remedy="use `key_by` first."
            )
        return self.partition.columns

    def iterate(
        self, id_: str, body: Callable[[Stream], tuple[Stream, Stream]], **at: int
    ) -> Stream:
        """A loop: ``body`` takes the head's stream and returns the feedback and the output.

        The head merges its input with the feedback; the back-edge is the tail's output. Every
        record must eventually leave the loop, or a bounded job never ends. Event time stops at the
        head.
        """
        head = self.apply(id_, "iteration head", passing, **at).of(same)
        again, leaving = body(head)
        width = self.graph.nodes[id_].parallelism
        tail = again.apply(f"{id_}-tail", "iteration tail", passing, parallelism=width).of(same)
        self.graph.nodes[id_].inputs.append(Edge(tail.id, 1, FORWARD, back=True))
        return leaving

    def sink(self, id_: str, sink: Sink | Sinks, *, parallelism: int | None = None) -> None:
        """Write to a target, exactly once: the sink's protocol decides how.

        To several (``Sinks``): each is a sink of the graph with the id ``ID.NAME``, and a checkpoint
        decides for all of them.
        """
        default = self.graph.nodes[self.id].parallelism
        for one_id, one in unfolded(id_, sink).items():
            node = Node(one_id, "sink", default if parallelism is None else parallelism, sink=one)
            node.inputs = [self.edge_to(0, node.parallelism)]
            self.graph.add(node)

    def edge_to(self, port: int, parallelism: int) -> Edge:
        """One to one if possible; else in turn."""
        if self.partition is not None:
            return Edge(self.id, port, self.partition)
        same = self.graph.nodes[self.id].parallelism == parallelism
        return Edge(self.id, port, FORWARD if same else REBALANCE)


def check(graph: Graph) -> None:
    """Raise ConfigError for a graph without a source, or an operator with an unused output."""
    if not any(node.source for node in graph.nodes.values()):
        raise ConfigError(
            f"The graph {graph.name} has no source.", remedy="begin it with `graph.source(...)`."
        )
    used = {edge.sender for node in graph.nodes.values() for edge in node.inputs}
    for node in graph.nodes.values():
        if node.sink is None and node.id not in used:
            raise ConfigError(
                f"The output of operator {node.id} goes nowhere.",
                remedy="send it to a sink, or remove the operator.",
            )
