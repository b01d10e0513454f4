"""What a random graph must yield, worked out directly, and what must come in order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from abs_embedded.partition import FORWARD
from abs_embedded.plan import loops
from abs_embedded.state.timers import Timers
from tests.model.simulation.dataflow import (
    COPIED_WINDOW,
    SMALLEST_COPY,
    WINDOWED,
    Built,
    Counting,
    Entries,
    Record,
    Windowing,
)


def in_order(built: Built) -> frozenset[str]:
    """The sources and keyed operators whose records of one key must reach the sink in order.

    Theirs is no loop, and every channel on the way leads one to one, by key, or to a single task.
    """
    receivers = {e.sender: (n, e) for n in built.graph.nodes.values() for e in n.inputs}
    inside = {id_ for loop in loops(built.graph) for id_ in loop}

    def kept(id_: str) -> bool:
        if id_ in inside:
            return False
        if id_ not in receivers:
            return True
        node, edge = receivers[id_]
        direct = edge.partition is FORWARD or edge.partition.keyed or node.parallelism == 1
        return direct and kept(node.id)

    return frozenset(id_ for id_ in (*built.lines, *built.salts, *built.windows) if kept(id_))


def sequence(built: Built, record: Record) -> tuple[tuple[str, int, int], int] | None:
    """Among which records this one has its place, and which: numbers ascend. None: among none.

    A sequence is one split and key of a source, or one key of a counter or window.
    """
    if 0 <= record[0] < SMALLEST_COPY:
        number, split = divmod(record[0] // 100, 10)
        return (built.numbered[number], split, record[1]), record[0]
    if -WINDOWED < record[0] < 0:
        (salt, key), count = divmod(-record[0] // 10_000, 10), -record[0] % 10_000
        counter = next((id_ for id_, s in built.salts.items() if s == salt), None)
        return None if counter is None else ((counter, 0, key), count)
    if record[0] <= COPIED_WINDOW:
        return None
    salt, rest = divmod(-record[0] - WINDOWED, 10_000_000)
    window = next((id_ for id_, s in built.windows.items() if s == salt), None)
    return None if window is None else ((window, 0, rest // 1_000_000), rest // 10_000 % 100)


@dataclass(frozen=True, slots=True)
class Expected:
    """Of a failure-free run.

    Args:
        output: how often each record reaches each sink.
        counts: final state of each counter, by key.
    """

    output: Counter[Record]
    counts: dict[str, dict[int, int]]


def expected(built: Built) -> Expected:
    """Push every record through the graph, one after the other."""
    receivers: dict[str, list[str]] = {}
    for node in built.graph.nodes.values():
        for edge in node.inputs:
            receivers.setdefault(edge.sender, []).append(node.id)
    counters = {id_: Counting(salt, {}) for id_, salt in built.salts.items()}
    windows = {
        id_: Windowing(salt, {}, Timers(Entries({})))  # type: ignore[arg-type]
        for id_, salt in built.windows.items()
    }
    stateful: dict[str, Counting | Windowing] = {**counters, **windows}
    output: Counter[Record] = Counter()
    waiting: deque[tuple[str, Record]] = deque()

    def out(id_: str, records: Sequence[Record]) -> None:
        for receiver in receivers.get(id_, ()):
            waiting.extend((receiver, record) for record in records)

    for id_, lines in built.lines.items():
        for split in lines.due():
            for batch in split:
                out(id_, batch)
    unfinished = list(windows)  # in the order in which they follow each other
    while waiting or unfinished:
        if not waiting:
            id_ = unfinished.pop(0)
            windows[id_].on_end(partial(out, id_))
            continue
        id_, record = waiting.popleft()
        if id_ in stateful:
            out(id_, stateful[id_].one(record))
        elif (function := built.functions.get(id_)) is not None:
            out(id_, function(record))
        else:
            output[record] += 1
    return Expected(output, {id_: c.counts for id_, c in counters.items() if c.counts})
