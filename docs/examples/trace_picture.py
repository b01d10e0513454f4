"""The plan as text and as a picture, and a checkpoint's timeline: what `abs trace` draws."""

import sys
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from abs_embedded import Graph, Job, Settings, describe, mermaid
from abs_embedded.command import draw
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_embedded.trace import Trace, checkpoints, timeline
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")

graph = Graph("traced", parallelism=2)
(
    graph.source("rows", TableSource([pa.table({"key": [n % 9 for n in range(20_000)]})], 20))
    .key_by("key")
    .reduce("count", "count")
    .map("out-rows", lambda b: pa.record_batch([b[1], b[0].cast("string")], ["id", "value"]))
    .sink("out", sink)
)
print(describe(graph))
print(mermaid(graph))  # Markdown viewers draw it

trace, store = Trace(), LocalSnapshotStore(folder / "snapshots")
strategy = sys.argv[2] if len(sys.argv) > 2 else "aligned"
often = Settings(interval=0.05)
Job(graph, store, sink.register(), strategy=strategy, settings=often, observe=trace).run()

trace.write(folder / "trace.jsonl")  # for `abs trace`
chosen = checkpoints(trace.moments)[-2]
shown = timeline(trace.moments, chosen)
draw(shown, folder / "checkpoint.svg")
assert {span.task for span in shown.spans} >= {"rows/0", "count/0", "count/1", "out/1"}
print(f"checkpoint {chosen}: {folder / 'checkpoint.svg'}")
