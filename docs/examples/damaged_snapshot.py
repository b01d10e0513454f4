"""A damaged snapshot is named, and nothing runs; going back to the one before needs consent."""

import sys
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from abs_core.errors import CorruptionError, ProtocolError
from abs_embedded import Graph, Job, Restore, Settings
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")

store = LocalSnapshotStore(folder / "snapshots")
rows = pa.table({"id": list(range(10_000))})


def job() -> Job:
    graph = Graph("damaged")
    seen = graph.source("rows", TableSource([rows], 20)).key_by("id").reduce("seen", "count")
    seen.map("o", lambda b: pa.record_batch([b[0], b[1].cast("string")], ["id", "value"])).sink(
        "out", sink
    )
    return Job(graph, store, sink.register(), settings=Settings(interval=0.02), retain=1000)


job().run()
before = store.completed()[0]
# The newest changes: the last snapshot needs them, the first one does not.
blob = max(store.blobs(), key=lambda key: int(key.partition("/")[0]))
(store.folder / "blobs" / blob).write_bytes(b"damaged")

said = []
for restore in (None, Restore(before)):
    try:
        job().run(restore)
    except (CorruptionError, ProtocolError) as error:
        said.append(str(error))
        print(error)
assert blob in said[0], said
assert "The sinks are not committed to" in said[1], said

job().run(Restore(before, go_back=True))
with target.transaction() as db:
    written, distinct = db.execute("SELECT count(*), count(DISTINCT id) FROM data").fetchone()
assert distinct == 10_000 < written, "what had been committed since is there twice"
print(f"by consent: {written} rows, {distinct} distinct")
