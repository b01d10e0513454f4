"""Count words by key, commit exactly once, and look at the plan.

Also: how a job goes on where it was, and how its last checkpoint is drawn (`abs trace trace.jsonl`).
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from abs_embedded import Graph, Job, Settings, describe
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_embedded.trace import Trace
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(
    folder / "target.db"
)  # SQLite; a real job has a PostgresSink, KafkaSink, S3Sink
sink = FakeSink(target, "2pc", "append")

words = pa.table({"word": ["barrier", "snapshot", "barrier", "commit"] * 500})


def as_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([batch["count"], batch["word"]], names=["id", "value"])


graph = Graph("words", parallelism=2)
(
    graph.source("words", TableSource([words], batch_rows=100))
    .key_by("word")
    .reduce("count", "count")
    .map("rows", as_rows)
    .sink("out", sink)
)
print(describe(graph))

trace = Trace()
store = LocalSnapshotStore(folder / "snapshots")
Job(graph, store, sink.register(), settings=Settings(interval=0.05), observe=trace).run()
trace.write(folder / "trace.jsonl")

with target.transaction() as db:
    found = dict(db.execute("SELECT value, max(id) FROM data GROUP BY value"))
assert found == {"barrier": 1000, "snapshot": 500, "commit": 500}, found
print(found)
