"""Change the code and the graph of a job: state follows the operators' ids."""

import sys
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pyarrow.compute as pc

from abs_core.errors import ConfigError
from abs_embedded import Graph, Job, Restore
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")

store = LocalSnapshotStore(folder / "snapshots")


def rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([batch["count"], batch["key"].cast("string")], ["id", "value"])


def graph(source_id: str, keys: list[int], *, doubled: bool) -> Graph:
    built = Graph("changed", parallelism=2)
    stream = built.source(source_id, TableSource([pa.table({"key": keys})], 10))
    counted = stream.key_by("key").reduce("count", "count")
    if doubled:  # an operator that was not there before
        counted = counted.map("twice", lambda b: b.set_column(1, "count", pc.multiply(b[1], 2)))
    counted.map("rows", rows).sink("out", sink)
    return built


Job(graph("monday", [1, 2, 1], doubled=False), store, sink.register()).run()
tuesday = Job(graph("tuesday", [1, 1], doubled=True), store, sink.register())
said = ""
try:
    tuesday.run()
except ConfigError as error:  # where the source `monday` has got to would be lost
    said = str(error)
assert "monday" in said, said
tuesday.run(Restore(drop_state=True))

with target.transaction() as db:
    found = dict(db.execute("SELECT value, max(id) FROM data GROUP BY value"))
assert found == {"1": 8, "2": 1}, "key 1 was counted twice on Monday and twice since; then doubled"
print(found)
