"""Snapshots as objects in S3: a job is stopped, and goes on from them.

Usage: snapshots_in_s3.py FOLDER s3://BUCKET/PREFIX ENDPOINT; keys are in the environment.
"""

import sys
from pathlib import Path
from threading import Event

import pyarrow as pa

from abs_clients.s3.location import Location
from abs_clients.s3.server import Server
from abs_embedded import Graph, Job, Settings
from abs_embedded.stores.s3 import S3SnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder, path, endpoint = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")
store = S3SnapshotStore(Server(endpoint, pathstyle=True), Location.parse(path))
rows = pa.table({"key": [n % 10 for n in range(20_000)]})
stop = Event()


def watch(what: str, task: object, checkpoint: int) -> None:
    if what == "committed":
        stop.set()


for until in (stop, Event()):
    graph = Graph("in-s3", parallelism=2)
    (
        graph.source("rows", TableSource([rows], 100))
        .key_by("key")
        .reduce("count", "count")
        .map("rows-out", lambda b: pa.record_batch([b[1], b[0].cast("string")], ["id", "value"]))
        .sink("out", sink)
    )
    often = Settings(interval=0.1)
    Job(graph, store, sink.register(), settings=often, observe=watch).run(stop=until)

with target.transaction() as db:
    found = dict(db.execute("SELECT value, max(id) FROM data GROUP BY value"))
assert found == {str(key): 2_000 for key in range(10)}, found
print(f"checkpoints in the bucket: {store.completed()}, {len(store.blobs())} blobs")
