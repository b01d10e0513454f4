"""Read a running job's state from outside: the last committed version, over Arrow Flight."""

import secrets
import sys
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from abs_embedded import Graph, Job, Settings
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.query import QueryClient, QueryServer
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")

graph = Graph("counts", parallelism=2)
(
    graph.source("rows", TableSource([pa.table({"id": [n % 4 for n in range(120_000)]})], 100))
    .key_by("id")
    .reduce("count", "count")
    .map("few", lambda b: pa.record_batch([b["id"], b["count"].cast("string")], ["id", "value"]))
    .sink("out", sink)
)
asked = pa.record_batch([pa.array([0, 1, 2, 3])], ["id"])
token = secrets.token_urlsafe()
seen: list[list[int | None]] = []
with QueryServer(token) as server:
    client = QueryClient(server.address, token)

    def look(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            seen.append(client.read("count", "count", asked)["value"].to_pylist())

    store = LocalSnapshotStore(folder / "snapshots")
    settings = Settings(interval=0.05)
    Job(graph, store, sink.register(), settings=settings, observe=look, queries=server).run()
    client.close()

assert len(seen) > 1
assert all(n is not None and n <= 30_000 for counts in seen[1:] for n in counts), seen
print(f"{len(seen)} looks, the last one saw {seen[-1]}")
