"""The same job with its state in memory and in RocksDB, moved from one to the other by a savepoint."""

import sys
from pathlib import Path
from tempfile import mkdtemp
from threading import Event

import pyarrow as pa

from abs_embedded import Graph, Job, Restore, Settings
from abs_embedded.state.contracts import NewBackend
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.rocks import RocksBackends
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")

store, savepoints = LocalSnapshotStore(folder / "snapshots"), LocalSnapshotStore(folder / "saved")
rows = pa.table({"key": [n % 100 for n in range(60_000)]})
stop = Event()


def job(backend: NewBackend) -> Job:
    graph = Graph("backends", parallelism=2)
    (
        graph.source("rows", TableSource([rows], 40))
        .key_by("key")
        .reduce("count", "count")
        .map("out-rows", lambda b: pa.record_batch([b[1], b[0].cast("string")], ["id", "value"]))
        .sink("out", sink)
    )
    often = Settings(interval=0.02)
    return Job(graph, store, sink.register(), backend, "aligned", often, savepoints, observe=watch)


def watch(what: str, task: object, checkpoint: int) -> None:
    if what == "committed" and not stop.is_set():
        if savepoints.completed():
            stop.set()
        else:
            in_memory.ask_savepoint()


in_memory = job(HeapBackend)
in_memory.run(stop=stop)
saved = savepoints.completed()[0]
job(RocksBackends(folder / "rocks")).run(Restore(saved, savepoints))

with target.transaction() as db:
    found = dict(db.execute("SELECT value, max(id) FROM data GROUP BY value"))
assert found == {str(key): 600 for key in range(100)}, found
print(f"in memory up to savepoint {saved}, in RocksDB from there on: {len(found)} keys, 600 each")
