"""Two independent parts in one graph: when one fails, it alone is restored while the other goes on."""

import sys
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp
from threading import Event

import pyarrow as pa

from abs_embedded import Graph, Job, Settings
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")

rows = pa.table({"id": list(range(10_000))})
calls = Counter[str]()


def text(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("value", batch["id"].cast("string"))


def calm(batch: pa.RecordBatch) -> pa.RecordBatch:
    calls["calm"] += 1
    return text(batch)


def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
    calls["failing"] += 1
    if calls["failing"] == 500:
        decided.wait(60)
        raise RuntimeError("a bug that shows once")
    return text(batch)


restored: list[int] = []
decided = Event()


def watch(what: str, task: object, checkpoint: int) -> None:
    if what == "restored":
        restored.append(checkpoint)
    elif what == "committed":
        decided.set()


graph = Graph("regions")
graph.source("left", TableSource([rows], 10)).map("calm", calm).sink("left-out", sink)
graph.source("right", TableSource([rows], 10)).map("failing", failing).sink("right-out", sink)
store, often = LocalSnapshotStore(folder / "snapshots"), Settings(interval=0.02)
Job(graph, store, sink.register(), settings=often, observe=watch).run()

with target.transaction() as db:
    found = Counter(id_ for (id_,) in db.execute("SELECT id FROM data"))
assert found == Counter(dict.fromkeys(range(10_000), 2)), "each row once on each side"
assert len(restored) == 1
assert calls["calm"] == 1_000, "the other side did nothing twice"
print(f"right was restored from checkpoint {restored[0]}; batches: {dict(calls)}")
