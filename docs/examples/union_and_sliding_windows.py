"""Two sources as one stream, and sliding windows of event time over it."""

import sys
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from abs_embedded import EventTime, Graph, Job
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")

web = pa.table({"page": ["home"] * 30, "second": list(range(30))})
phone = pa.table({"page": ["home"] * 15, "second": list(range(0, 30, 2))})
time = EventTime("second", lateness=5)

graph = Graph("visits", parallelism=2)
web_visits = graph.source("web", TableSource([web], 7), event_time=time)
phone_visits = graph.source("phone", TableSource([phone], 7), event_time=time)
(
    web_visits.union("all", phone_visits)
    .key_by("page")
    .window("last-20-every-10", "second", 20, "count", slide=10)
    .map("rows", lambda b: b.select(["window_start", "count"]).rename_columns(["id", "value"]))
    .map("text", lambda b: b.set_column(1, "value", b["value"].cast("string")))
    .sink("out", sink)
)
Job(graph, LocalSnapshotStore(folder / "snapshots"), sink.register()).run()

with target.transaction() as db:
    found = dict(db.execute("SELECT id, value FROM data"))
assert found == {-10: "15", 0: "30", 10: "30", 20: "15"}, found
print(found)
