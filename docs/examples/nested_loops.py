"""A loop inside a loop: the inner one divides by 3, the outer one takes 1 off and begins again."""

import sys
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pyarrow.compute as pc

from abs_embedded import Graph, Job, Settings, Stream
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")


def left(batch: pa.RecordBatch) -> pa.Array:
    """What is left of n when it is divided by 3."""
    return pc.subtract(batch["n"], pc.multiply(pc.divide(batch["n"], 3), 3))


def inner(head: Stream) -> tuple[Stream, Stream]:
    again = head.filter("multiple", lambda b: pc.equal(left(b), 0))
    done = head.filter("no-multiple", lambda b: pc.greater(left(b), 0))
    return again.map("third", lambda b: b.set_column(1, "n", pc.divide(b["n"], 3))), done


def outer(head: Stream) -> tuple[Stream, Stream]:
    divided = head.iterate("divide", inner)
    again = divided.filter("above-1", lambda b: pc.greater(b["n"], 1))
    done = divided.filter("one", lambda b: pc.equal(b["n"], 1))
    return again.map("less", lambda b: b.set_column(1, "n", pc.subtract(b["n"], 1))), done


numbers = pa.table({"id": list(range(1, 200)), "n": list(range(1, 200))})
graph = Graph("nested", parallelism=2)
(
    graph.source("numbers", TableSource([numbers], 10))
    .iterate("loop", outer)
    .map("rows", lambda b: pa.record_batch([b["id"], b["n"].cast("string")], ["id", "value"]))
    .sink("out", sink)
)
store = LocalSnapshotStore(folder / "snapshots")
Job(graph, store, sink.register(), settings=Settings(interval=0.01)).run()

with target.transaction() as db:
    found = sorted(db.execute("SELECT id, value FROM data"))
assert found == [(n, "1") for n in range(1, 200)], found
print(f"{len(found)} numbers left both loops, {len(store.completed())} snapshots are kept")
