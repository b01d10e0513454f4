"""A function for each row, and an operator of one's own whose state belongs to its task, not to a key.

Stopped and rescaled: a `split` list is dealt out, each item to one task; a `union` list goes to all.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp
from threading import Event

import pyarrow as pa

from abs_embedded import Graph, Job, Settings
from abs_embedded.context import TaskContext
from abs_embedded.operators import Emit, Operator, Row
from abs_embedded.state.codecs import INT64, TEXT
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.operator_state import Mode
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")

lines = pa.table({"line": ["each barrier goes before", "a snapshot"] * 1000 + ["consistently"] * 9})
words = pa.schema([("word", pa.string())])


def split(row: Row) -> Iterable[Row]:
    return ({"word": word} for word in row["line"].split())


class Summary(Operator):
    """How many words its task has seen, and the longest that any task has seen before a restart."""

    def __init__(self, context: TaskContext) -> None:
        self.seen = context.lists.list("seen", INT64, Mode.SPLIT)
        self.longest = context.lists.list("longest", TEXT, Mode.UNION)

    def on_batch(self, port: int, batch: pa.RecordBatch, emit: Emit) -> None:
        self.seen.put([sum(self.seen.get()) + batch.num_rows])
        known = [*self.longest.get(), *batch["word"].to_pylist()]
        self.longest.put([max(known, key=len)])

    def on_end(self, emit: Emit) -> None:
        if not (seen := self.seen.get()):
            return  # told already: this is called again after a recovery
        longest = max(self.longest.get(), key=len)
        emit(pa.record_batch([[sum(seen)], [longest]], names=["id", "value"]))
        self.seen.put([])


def run(parallelism: int, stop: Event) -> None:
    graph = Graph("summary", parallelism=parallelism)
    (
        graph.source("lines", TableSource([lines], 1), parallelism=1)
        .rebalance()
        .flat_map_rows("words", split, words, parallelism=parallelism)
        .apply("summary", "summary", Summary)
        .sink("out", sink)
    )

    def watch(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and parallelism == 3:
            stop.set()

    often, store = Settings(interval=0.02), LocalSnapshotStore(folder / "snapshots")
    Job(graph, store, sink.register(), settings=often, observe=watch).run(stop=stop)


run(3, Event())  # stopped after its first checkpoint
run(2, Event())

with target.transaction() as db:
    found = list(db.execute("SELECT id, value FROM data"))
assert sum(count for count, _ in found) == 1000 * 6 + 9, found
assert max((word for _, word in found), key=len) == "consistently", found
print(found)
