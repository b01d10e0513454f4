"""A function over rows with value, list, map and reducing state, and a timer that reads them all."""

import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from abs_embedded import EventTime, Graph, Job
from abs_embedded.context import TaskContext
from abs_embedded.keyed import KeyedContext
from abs_embedded.operators import Row
from abs_embedded.state.codecs import INT64, JSON, TEXT
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")


def states(context: TaskContext) -> dict[str, object]:
    return {
        "last": context.value("last", TEXT),
        "path": context.list("path", JSON),
        "seen": context.map("seen", TEXT, INT64),
        "spent": context.reducing("spent", INT64, lambda a, b: a + b),
    }


def on_row(row: Row, at: KeyedContext) -> Iterable[Row]:
    at.states["last"].put(at.key, row["page"])
    at.states["path"].append(at.key, row["page"])
    at.states["seen"].put(at.key, row["page"], row["second"])
    at.states["spent"].add(at.key, row["cents"])
    at.set_timer(100)
    return ()


def on_timer(time: int, at: KeyedContext) -> Iterable[Row]:
    path, seen = at.states["path"].get(at.key), dict(at.states["seen"].items(at.key))
    last, spent = at.states["last"].get(at.key), at.states["spent"].get(at.key)
    yield {"id": spent, "value": f"{'>'.join(path)}, last {last} at {seen[last]}"}


pages, seconds = ["home", "shop", "home", "pay"], [1, 5, 9, 12]
clicks = pa.table({"user": [7] * 4, "page": pages, "second": seconds, "cents": [0, 150, 0, 850]})
graph = Graph("sessions", parallelism=2)
source = graph.source("clicks", TableSource([clicks]), event_time=EventTime("second"))
schema = pa.schema([("id", pa.int64()), ("value", pa.string())])
keyed = source.key_by("user")
keyed.process("session", on_row, schema, states, on_timer=on_timer).sink("out", sink)
Job(graph, LocalSnapshotStore(folder / "snapshots"), sink.register()).run()

with target.transaction() as db:
    found = list(db.execute("SELECT id, value FROM data"))
assert found == [(1000, "home>shop>home>pay, last pay at 12")], found
print(found)
