"""One graph under each snapshot strategy; then two checkpoints in flight at once."""

import sys
from pathlib import Path
from statistics import median
from tempfile import mkdtemp

import pyarrow as pa

from abs_embedded import STRATEGIES, Graph, Job, Settings
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_embedded.trace import Trace, checkpoints, timeline
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
rows = pa.table({"key": [n % 50 for n in range(40_000)]})
# A checkpoint that is not complete after 10 s has failed; the third failure in a row ends the job.
one = Settings(interval=0.05, min_pause=0.01, timeout=10, tolerated=2)
two = Settings(interval=0.05, timeout=10, in_flight=2)


def run(name: str, strategy: str, settings: Settings) -> None:
    place = folder / name
    place.mkdir(parents=True)
    target = FakeTarget(place / "target.db")
    sink, trace = FakeSink(target, "2pc", "append"), Trace()
    graph = Graph("strategies", parallelism=2)
    (
        graph.source("rows", TableSource([rows], 200))
        .key_by("key")
        .reduce("count", "count")
        .map("out-rows", lambda b: pa.record_batch([b[1], b[0].cast("string")], ["id", "value"]))
        .sink("out", sink)
    )
    store = LocalSnapshotStore(place / "snapshots")
    Job(graph, store, sink.register(), strategy=strategy, settings=settings, observe=trace).run()
    done = [timeline(trace.moments, n) for n in checkpoints(trace.moments)]
    took = median(dict(line.marks)["committed"] for line in done)
    print(f"{name:15} {len(done):3} checkpoints, one took {1000 * took:.1f} ms (median)")
    with target.transaction() as db:
        assert dict(db.execute("SELECT value, max(id) FROM data GROUP BY value")) == {
            str(key): 800 for key in range(50)
        }


for strategy in STRATEGIES:
    run(strategy, strategy, one)
run("two-in-flight", "aligned", two)
