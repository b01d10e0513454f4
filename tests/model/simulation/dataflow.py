"""Random graphs over records (id, key, hops), and what each of them must yield, worked out directly.

Every operator is a function of single records, but for counters and windows; and what these emit does
not depend on the order of their input, as a multiset. So the expected output needs no schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from abs_core.barriers.elements import Batch
from abs_core.contracts import Sink
from abs_embedded.graph import EventTime, Graph, Stream
from abs_embedded.operators import Emit, Operator
from abs_embedded.state.contracts import Keys, Values
from abs_embedded.state.timers import Timers
from tests.model.simulation.inputs import Endless, Journal, Lines, Pausing

Record = tuple[int, int, int]
KEYS = 5
COPIED = 7_000_000
"""What is added to the number of a record's copy."""

SMALLEST_COPY = 1_000_000
"""Numbers of source records are below it, those of their copies are not."""

WINDOWED = 10**9
"""What is added to the number of a window, before it is made negative."""

COPIED_WINDOW = -100 * WINDOWED
"""What is added to the number of a window's copy: it must not look like that of another window."""

BATCHES = 5
"""In a split, at most."""

MOST_BATCHES = 9
"""So many at most can be told apart by their windows."""

IDLE_AFTER = 3
"""Ticks of the clock without data after which a split is idle."""

GROUPS = 12
"""Number of key groups; an operator has at most 3 tasks."""


@dataclass(frozen=True, slots=True)
class ByRecordKey:
    """As ``partition.ByKey``, on records."""

    keyed = True

    def split(
        self, batch: Batch, width: int, sender: int, turn: int
    ) -> Iterable[tuple[int, Batch]]:
        if width == 1:
            return ((0, batch),)
        parts: dict[int, list[Record]] = {}
        for record in batch:
            parts.setdefault(owner(record[1], width), []).append(record)
        return [(target, tuple(part)) for target, part in parts.items()]


def owner(key: int, width: int) -> int:
    return key % GROUPS * width // GROUPS


class Counting(Operator):
    """Counts records by key; emits each record, and one that says how many its key has had."""

    def __init__(self, salt: int, counts: dict[int, int]) -> None:
        self.counts = counts
        self._salt = salt

    def on_batch(self, port: int, batch: Batch, emit: Emit) -> None:
        out: list[Record] = []
        for record in batch:
            out += self.one(record)
        emit(tuple(out))

    def one(self, record: Record) -> list[Record]:
        if record[0] < 0:  # says a count: would it be counted too, output would depend on order
            return [record]
        key = record[1]
        count = self.counts.get(key, 0) + 1
        self.counts[key] = count
        return [record, (-(self._salt * 100_000 + key * 10_000 + count), key, 0)]


WINDOW = 10


@dataclass(frozen=True, slots=True)
class RecordTime(EventTime):
    """A record's time is in its number; it ascends within a split."""

    def highest(self, batch: Batch) -> int | None:
        return max(time_of(record) for record in batch)


def time_of(record: Record) -> int:
    return record[0] % 100


def copied(number: int) -> int:
    """The number of a record's copy."""
    return number + (COPIED_WINDOW if number <= -WINDOWED else COPIED)


def is_timed(record: Record) -> bool:
    """Whether it came from a source, and not from a counter or a window, whose time says nothing."""
    return record[0] >= 0 and record[0] % COPIED < SMALLEST_COPY


class Windowing(Operator):
    """Counts records by key and window of event time, with the runtime's own timers.

    What it counts of a window is kept under a number that has the key's owner.
    """

    def __init__(self, salt: int, counts: dict[int, int], timers: Timers) -> None:
        self.counts = counts
        self.reached = -1
        self._salt = salt
        self._timers = timers

    def on_batch(self, port: int, batch: Batch, emit: Emit) -> None:
        passing = tuple(out for record in batch for out in self.one(record))
        if passing:
            emit(passing)

    def one(self, record: Record) -> list[Record]:
        if not is_timed(record):
            return [record]
        key, window = record[1], time_of(record) // WINDOW
        at = key + GROUPS * (1 + window)
        self.counts[at] = self.counts.get(at, 0) + 1
        self._timers.register(bytes([key]), (1 + window) * WINDOW)
        return []

    def on_watermark(self, time: int, emit: Emit) -> None:
        self.reached = time
        out = []
        for at, (key,) in self._timers.due(time):
            count = self.counts.pop(key + GROUPS * (at // WINDOW))
            out.append(
                (-(((self._salt * 10 + key) * 100 + at) * 10_000 + count + WINDOWED), key, 0)
            )
        if out:
            emit(tuple(out))

    def on_end(self, emit: Emit) -> None:
        self.on_watermark(1 << 62, emit)


class Entries:
    """The table of the timers, in a dictionary."""

    def __init__(self, entries: dict[tuple[bytes, bytes], bytes]) -> None:
        self._entries = entries

    def table(self, name: str, shape: str) -> Entries:
        return self

    def put_many(self, keys: Keys, values: Values, subs: Keys | None = None) -> None:
        for key, value, sub in zip(keys, values, subs or (), strict=True):
            if value is None:
                self._entries.pop((key, sub), None)
            else:
                self._entries[key, sub] = value

    def everything(self) -> list[tuple[bytes, bytes, bytes]]:
        return [(key, sub, value) for (key, sub), value in self._entries.items()]


@dataclass(slots=True)
class Built:
    """A graph, and what each operator does to one record (None: a counter)."""

    graph: Graph
    functions: dict[str, Callable[[Record], list[Record]] | None] = field(default_factory=dict)
    salts: dict[str, int] = field(default_factory=dict)
    windows: dict[str, int] = field(default_factory=dict)
    lines: dict[str, Lines] = field(default_factory=dict)
    numbered: dict[int, str] = field(default_factory=dict)


class Builder:
    """Builds the graph of a seed; the parallelism comes from another seed, so it can change.

    Args:
        loops: whether the graph may have any.
        ordered: every channel leads one to one or by key, so each key has an order, and a source is
            followed by an operator of as many tasks; else both at times.
        pausing: splits of sources pause, and windows follow the sources.
        batches: in a split, at most.
    """

    def __init__(
        self,
        shape: Random,
        widths: Random,
        sink: Sink,
        journal: Journal,
        *,
        loops: bool,
        ordered: bool,
        pausing: bool = False,
        batches: int = BATCHES,
    ) -> None:
        self._shape = shape
        self._batches = batches
        self._widths = widths
        self._sink = sink
        self._journal = journal
        self._loops = loops
        self._ordered = ordered
        self._pause = shape.randrange(1, BATCHES) if pausing else None
        self._number = 0
        self._even = widths.choice((2, 3)) if shape.random() < 0.4 or ordered else None
        self.built = Built(Graph("simulated", max_parallelism=GROUPS))

    def build(self) -> Built:
        streams = [self._source() for _ in range(self._shape.choice((1, 1, 2)))]
        if self._ordered:
            streams = [self._count(self._stateless(s, "same", lambda r: [r])) for s in streams]
        if self._pause is not None:
            streams = [self._window(stream) for stream in streams]
        for _ in range(self._shape.choice((1, 1, 2, 3))):
            at = self._shape.randrange(len(streams))
            streams[at] = self._operator(streams[at], depth=0)
            if len(streams) > 1 and self._shape.random() < 0.4:
                last = streams.pop()
                streams[0] = streams[0].union(self._id("union"), last, **self._width())
                self.built.functions[streams[0].id] = lambda record: [record]
        for stream in streams:
            stream.sink(self._id("sink"), self._sink, **self._width())
        self._open_sources()
        return self.built

    def _source(self) -> Stream:
        id_ = self._id("source")
        number = self._number
        splits = []
        whole = self._ordered or self._pause is not None
        for split in range(3 if whole else self._shape.choice((1, 2, 2, 3))):
            batches = []
            for batch in range(self._batches if whole else self._shape.choice((1, 3, BATCHES))):
                first = number * 1000 + split * 100 + batch * 10
                rows = range(first, first + self._shape.choice((1, 2, 2)))
                batches.append(tuple((row, row % KEYS, 0) for row in rows))
            splits.append(tuple(batches))
        self.built.lines[id_] = Lines(tuple(splits))
        self.built.numbered[number] = id_
        if self._pause is not None:
            return self._pausing(id_, splits, self._pause)
        time = RecordTime("") if self._shape.random() < 0.8 else None
        return self.built.graph.source(id_, self.built.lines[id_], event_time=time, **self._width())

    def _pausing(self, id_: str, splits: list[tuple[Batch, ...]], pause: int) -> Stream:
        """One split at least has all batches up to the pause; others lack some, and do not get them."""
        pauses = [pause, *(self._shape.randrange(pause + 1) for _ in splits[1:])]
        self._shape.shuffle(pauses)
        had = tuple(s[:p] + s[pause:] for s, p in zip(splits, pauses, strict=True))
        source = self.built.lines[id_] = Pausing(had, tuple(pauses), self._journal)
        self._journal.awaited = (pause - 1) * WINDOW
        time = RecordTime("", idle_after=IDLE_AFTER, clock=self._journal.clock)
        return self.built.graph.source(id_, source, event_time=time, bounded=False, **self._width())

    def _open_sources(self) -> None:
        """Half of the graphs have sources without an end; but of what comes late, windows are over."""
        if self._ordered or self.built.windows or self._shape.random() < 0.5:
            return
        for id_, lines in self.built.lines.items():
            node, endless = self.built.graph.nodes[id_], Endless(lines.splits_, id_, self._journal)
            node.source, node.bounded = endless, False
            self.built.lines[id_] = endless

    def _operator(self, stream: Stream, depth: int) -> Stream:
        kind = self._shape.random()
        if kind < 0.2 and depth == 0:
            return self._window(stream)
        if kind < 0.45:
            return self._count(stream)
        if kind < 0.65 and self._loops:
            return self._loop(stream, depth)
        salt = self._shape.randrange(4)
        if kind < 0.8:
            return self._stateless(stream, "map", lambda r: [(r[0], (r[1] + salt) % KEYS, r[2])])
        if kind < 0.9:
            return self._stateless(stream, "filter", lambda r: [r] if r[0] % 4 != salt else [])
        return self._stateless(
            stream, "flat", lambda r: [r, (copied(r[0]), (r[1] + 1) % KEYS, r[2])]
        )

    def _count(self, stream: Stream) -> Stream:
        id_ = self._id("count")
        salt = self._number
        self.built.functions[id_] = None
        self.built.salts[id_] = salt
        keyed = Stream(stream.graph, stream.id, ByRecordKey())
        return keyed.apply(id_, "count", lambda c: Counting(salt, c.counts), **self._width())

    def _window(self, stream: Stream) -> Stream:
        id_ = self._id("window")
        salt = self._number
        self.built.windows[id_] = salt
        keyed = Stream(stream.graph, stream.id, ByRecordKey())
        return keyed.apply(
            id_,
            "window",
            lambda c: Windowing(salt, c.counts, Timers(Entries(c.entries))),  # type: ignore[arg-type]
            **self._width(),
        )

    def _loop(self, stream: Stream, depth: int) -> Stream:
        """A record goes round up to twice more; one that says a count leaves at once.

        Event time stops at the head: a window in the loop counts until all records have ended.
        """
        id_ = self._id("loop")
        self.built.functions[id_] = self.built.functions[f"{id_}-tail"] = lambda r: [r]

        def body(head: Stream) -> tuple[Stream, Stream]:
            kind = self._shape.random()
            inner = self._count(head) if kind < 0.6 else self._window(head) if kind < 0.8 else head
            if depth == 0 and self._shape.random() < 0.25:
                inner = self._loop(inner, 1)
            unit = 1 if depth else 16
            hop = self._stateless(inner, "hop", lambda r: [(r[0], r[1], r[2] + unit)])
            again = self._stateless(hop, "again", lambda r: [r] if goes_round(r, unit) else [])
            leave = self._stateless(
                hop,
                "leave",
                lambda r: (
                    [(r[0], r[1], r[2] % unit if unit > 1 else r[2] // 16 * 16)]
                    if not goes_round(r, unit)
                    else []
                ),
            )
            return again, leave

        return stream.iterate(id_, body, **self._width())

    def _stateless(
        self, stream: Stream, kind: str, function: Callable[[Record], list[Record]]
    ) -> Stream:
        id_ = self._id(kind)
        self.built.functions[id_] = function

        def batchwise(batch: Batch) -> list[Batch]:
            out = tuple(made for record in batch for made in function(record))
            return [out] if out else []

        return stream.stateless(id_, kind, batchwise, **self._width())

    def _id(self, kind: str) -> str:
        self._number += 1
        return f"{kind}{self._number}"

    def _width(self) -> dict[str, Any]:
        return {"parallelism": self._even or self._widths.choice((1, 1, 1, 2, 3))}


def goes_round(record: Record, unit: int) -> bool:
    """Whether it goes round once more; ``hops`` has 16s for the outer loop, ones for the inner."""
    hops = record[2] % 16 if unit == 1 else record[2] // 16
    return record[0] >= 0 and hops <= record[0] % 3
