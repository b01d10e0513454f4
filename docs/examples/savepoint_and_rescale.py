"""Stop a job with a savepoint, and go on from it with another parallelism."""

import sys
from pathlib import Path
from tempfile import mkdtemp
from threading import Event

import pyarrow as pa

from abs_embedded import Graph, Job, Restore, Settings
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")
store, savepoints = LocalSnapshotStore(folder / "snapshots"), LocalSnapshotStore(folder / "saved")
rows = pa.table({"key": [n % 10 for n in range(50_000)]})


def job(parallelism: int, observe=lambda what, task, checkpoint: None) -> Job:
    graph = Graph("rescaled", parallelism=parallelism)
    (
        graph.source("rows", TableSource([rows], batch_rows=50))
        .key_by("key")
        .reduce("count", "count")
        .map(
            "rows-out",
            lambda b: pa.record_batch([b["count"], b["key"].cast("string")], names=["id", "value"]),
        )
        .sink("out", sink)
    )
    return Job(
        graph,
        store,
        sink.register(),
        settings=Settings(interval=0.02),
        savepoints=savepoints,
        observe=observe,
    )


stop = Event()
saved: list[int] = []


def watch(what: str, task: object, checkpoint: int) -> None:
    if what == "committed" and not saved and savepoints.completed():
        saved.append(checkpoint)
        stop.set()
    elif what == "committed" and not saved:
        first.ask_savepoint()


first = job(1, watch)
first.run(stop=stop)
print(f"stopped after savepoint {saved[0]}")
job(3).run(Restore(saved[0], savepoints))

with target.transaction() as db:
    found = dict(db.execute("SELECT value, max(id) FROM data GROUP BY value"))
assert found == {str(key): 5_000 for key in range(10)}, found
print(found)
