"""Event time: tumbling windows of clicks by user, joined with the users' names."""

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

clicks = pa.table({"user": [n % 2 for n in range(40)], "second": list(range(40))})
users = pa.table({"user": [0, 1], "name": ["Ada", "Grace"]})

graph = Graph("clicks", parallelism=2)
counted = (
    graph.source("clicks", TableSource([clicks], 7), event_time=EventTime("second", lateness=5))
    .key_by("user")
    .window("per-20-seconds", "second", 20, "count")
)
named = counted.key_by("user").join(
    "named",
    graph.source("users", TableSource([users])).key_by("user"),
    lambda click, user: {
        "id": click["window_start"],
        "value": f"{user['name']}: {click['count']}",
    },
    pa.schema([("id", pa.int64()), ("value", pa.string())]),
)
named.sink("out", sink)
Job(graph, LocalSnapshotStore(folder / "snapshots"), sink.register()).run()

with target.transaction() as db:
    found = sorted(db.execute("SELECT id, value FROM data"))
assert found == [(0, "Ada: 10"), (0, "Grace: 10"), (20, "Ada: 10"), (20, "Grace: 10")], found
print(found)
