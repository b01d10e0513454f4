"""``python -m benchmarks.pictures``: a timeline of one checkpoint of each algorithm.

The job of ``snapshot_ways``, and for algorithm 2 a loop that halves numbers. Of each run the checkpoint
in the middle is drawn, as ``abs trace`` draws it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_embedded import Graph, Job, Settings, Stream
from abs_embedded.command import draw
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_embedded.trace import Trace, checkpoints, timeline
from abs_testing.fakes import FakeSink, FakeTarget
from benchmarks.snapshot_ways import WAYS, graph, tables

IMAGES = Path(__file__).parents[1] / "docs" / "images"
ROWS = 600_000


def halving(sink: FakeSink) -> Graph:
    """Numbers go round until they are 1."""

    def body(head: Stream) -> tuple[Stream, Stream]:
        halved = head.key_by("id").map("halve", lambda b: b.set_column(1, "n", pc.divide(b[1], 2)))
        again = halved.filter("again", lambda b: pc.greater(b["n"], 1))
        return again, halved.filter("done", lambda b: pc.less_equal(b["n"], 1))

    numbers = pa.table({"id": np.arange(ROWS // 4), "n": np.arange(ROWS // 4)})
    built = Graph("halving", parallelism=2)
    looped = built.source("numbers", TableSource([numbers], 500)).iterate("loop", body)
    looped.filter("few", lambda b: pc.equal(b["id"], 7)).map(
        "rows", lambda b: pa.record_batch([b["id"], b["n"].cast("string")], ["id", "value"])
    ).sink("out", sink)
    return built


def traced(name: str, way: str) -> Trace:
    """Run a job and keep its trace."""
    with tempfile.TemporaryDirectory(prefix="abs-pictures-") as folder:
        target = FakeTarget(Path(folder) / "target.db")
        sink, trace = FakeSink(target, "2pc", "append"), Trace()
        job = halving(sink) if name == "loop" else graph(tables(ROWS), sink)
        store, often = LocalSnapshotStore(Path(folder) / "snapshots"), Settings(interval=0.3)
        Job(
            job, store, sink.register(), strategy=way, settings=often, observe=trace, capacity=4
        ).run()
        target.close()
    return trace


def main() -> None:
    """Draw all of them."""
    for name in ("loop", *(way for way in WAYS if way != "none")):
        trace = traced(name, "aligned" if name == "loop" else name)
        done = checkpoints(trace.moments)
        shown = timeline(trace.moments, done[len(done) // 2])
        draw(shown, IMAGES / f"checkpoint-{name}.svg")


if __name__ == "__main__":
    main()
