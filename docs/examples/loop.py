"""A loop: records go round until they are done; algorithm 2 keeps what goes round in its snapshots."""

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


def halve(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "n", pc.divide(batch["n"], 2))


def body(head: Stream) -> tuple[Stream, Stream]:
    halved = head.map("halve", halve)
    again = halved.filter("again", lambda batch: pc.greater(batch["n"], 1))
    done = halved.filter("done", lambda batch: pc.less_equal(batch["n"], 1))
    return again, done


numbers = pa.table({"id": list(range(2, 100)), "n": list(range(2, 100))})
graph = Graph("halving", parallelism=2)
(
    graph.source("numbers", TableSource([numbers], batch_rows=10))
    .iterate("loop", body)
    .map("rows", lambda b: pa.record_batch([b["id"], b["n"].cast("string")], names=["id", "value"]))
    .sink("out", sink)
)
store = LocalSnapshotStore(folder / "snapshots")
Job(graph, store, sink.register(), settings=Settings(interval=0.01)).run()

with target.transaction() as db:
    found = sorted(db.execute("SELECT id, value FROM data"))
assert found == [(n, "1") for n in range(2, 100)], found
print(f"{len(found)} numbers went round until they were 1")
