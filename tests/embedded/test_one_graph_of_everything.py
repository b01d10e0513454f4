"""One graph of a union with itself, nested loops, windows, a skewed join and a region of its own.

Stopped, restored in another way and with another parallelism, and failing in between, it yields what a
plain calculation does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from abs_embedded import EventTime, Graph, Settings, Stream
from abs_embedded.state.contracts import NewBackend
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.rocks import RocksBackends
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests import sample
from tests.embedded.bench import Bench

pytestmark = pytest.mark.long

SIZE, LENGTH, SLIDE = 600, 40, 20
SPLITS = [
    pa.table(
        {
            "id": range(first, SIZE, 3),
            "n": [1 + 7 * j % 40 for j in range(first, SIZE, 3)],
            "at": [j // 3 for j in range(first, SIZE, 3)],
        }
    )
    for first in range(3)
]
NAMES = pa.table({"n": [0, 1, 1, 1], "name": ["x", "y", "z", "w"]})


def labelled(kind: str, number: str, *more: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """(number, "kind:more:...") of each row."""

    def rows(batch: pa.RecordBatch) -> pa.RecordBatch:
        words = [pa.scalar(kind), *(batch[name].cast("string") for name in more), ":"]
        label = pc.binary_join_element_wise(*words) if more else pa.array([kind] * len(batch))
        return pa.record_batch([batch[number], label], schema=SCHEMA)

    return rows


def halved(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "n", pc.shift_right(batch["n"], 1))


def evened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One less than an odd number, which then is even."""
    return batch.set_column(1, "n", pc.subtract(batch["n"], pc.bit_wise_and(batch["n"], 1)))


def odd(batch: pa.RecordBatch) -> pa.Array:
    return pc.equal(pc.bit_wise_and(batch["n"], 1), 1)


def inner(head: Stream) -> tuple[Stream, Stream]:
    again = head.filter("odd", odd).map("evened", evened)
    return again, head.filter("even", lambda b: pc.invert(odd(b)))


def outer(head: Stream) -> tuple[Stream, Stream]:
    half = head.key_by("id").iterate("inner", inner).rebalance().map("halved", halved)
    again = half.filter("again", lambda b: pc.greater(b["n"], 1))
    return again, half.filter("small", lambda b: pc.less_equal(b["n"], 1))


def graph(
    bench: Bench, parallelism: int, fails: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Graph:
    built = Graph("everything", parallelism=parallelism, max_parallelism=12)
    time = EventTime("at", lateness=SIZE)  # splits are read apart: nothing is late
    rows = built.source("rows", TableSource(SPLITS, 17), event_time=time).map("fails", fails)
    copied = rows.map("copied", lambda b: b.set_column(0, "id", pc.add(b["id"], SIZE)))
    looped = rows.union("both", copied, rows.filter("none", lambda b: pc.less(b["id"], 0)))
    looped = looped.iterate("outer", outer)
    looped.map("ends", labelled("end", "id", "n")).sink("to-ends", bench.sink)
    few = looped.filter("few", lambda b: pc.less(b["id"], 60)).key_by("n")
    names = built.source("names", TableSource([NAMES], 1)).key_by("n")
    few.join(
        "joined", names, lambda a, b: {"id": a["id"], "value": f"join:{b['name']}"}, SCHEMA
    ).sink("to-joined", bench.sink)
    for id_, stream in (("before", rows), ("after", looped)):
        windows = stream.key_by("n").window(id_, "at", LENGTH, "sum", "id", slide=SLIDE)
        shown = windows.map(f"{id_}-shown", labelled(id_, "sum", "n", "window_start"))
        shown.sink(f"to-{id_}", bench.sink)
    apart = built.source("apart", TableSource(SPLITS[:1], 9))
    apart.map("apart-shown", labelled("apart", "id")).sink("to-apart", bench.sink)
    return built


def due() -> Counter[tuple[int, str]]:
    rows = [row for split in SPLITS for row in split.to_pylist()]
    both = rows + [{**row, "id": row["id"] + SIZE} for row in rows]
    ended = [{**row, "n": _end_of(row["n"])} for row in both]
    found = Counter((row["id"], f"end:{row['n']}") for row in ended)
    names = {0: ["x"], 1: ["y", "z", "w"]}
    found.update((r["id"], f"join:{name}") for r in ended if r["id"] < 60 for name in names[r["n"]])
    for kind, counted in (("before", rows), ("after", ended)):
        sums: Counter[tuple[int, int]] = Counter()
        for row in counted:
            newest = row["at"] // SLIDE * SLIDE
            for start in (newest, newest - SLIDE):
                sums[row["n"], start] += row["id"]
        found.update((total, f"{kind}:{n}:{start}") for (n, start), total in sums.items())
    found.update((id_, "apart") for id_ in SPLITS[0]["id"].to_pylist())
    return found


def _end_of(n: int) -> int:
    while True:
        n >>= 1
        if n <= 1:
            return n


def failing_once(after: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    left = iter(range(after))

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if next(left, None) == after - 1:
            raise RuntimeError("planted")
        return batch

    return fails


def backends(folder: Path) -> Iterator[NewBackend]:
    yield HeapBackend
    yield RocksBackends(folder / "rocks")


@pytest.mark.parametrize("seed", sample.members(range(12), 1, "a graph of everything"))
def test_a_graph_of_everything_yields_what_is_due(tmp_path: Path, seed: int) -> None:
    bench, chance = Bench(tmp_path), Random(seed)
    backend = [*backends(tmp_path)][seed % 2]
    ways = ["aligned", "unaligned", "stop_the_world"]
    for run in range(5):
        stop, left = Event(), [chance.randrange(1, 4)]

        def observe(
            what: str, task: object, n: int, stop: Event = stop, left: list[int] = left
        ) -> None:
            left[0] -= what == "committed"
            if not left[0]:
                stop.set()

        last = run == 4
        bench.job(
            graph(bench, chance.randrange(1, 4), failing_once(10**9 if last else 8)),
            chance.choice(ways),
            backend=backend,
            observe=observe if not last else lambda what, task, n: None,
            capacity=chance.choice([1, 2, 16]),
            settings=Settings(interval=0.01, in_flight=chance.choice([1, 2, 3])),
        ).run(stop=stop)
    assert Counter(bench.rows()) == due()
    assert bench.prepared() == 0
