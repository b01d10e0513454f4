"""A job whose state is larger than the memory it may have, as a process of its own.

Usage: large_state.py FOLDER heap|rocks LIMIT_MB ENTRIES. Each key comes twice, first all once, then all
again. The first time an entry of 1000 bytes is put; the second time it is looked up and compared. The
first process to get so far stops once all entries are in a snapshot; the next one goes on from that
snapshot, and says how many entries were there as they had been put. The limit is on address space, on
top of what the process has mapped once its imports are done. Prints one JSON line.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_embedded import Graph, Job, Settings
from abs_embedded.context import TaskContext
from abs_embedded.operators import Emit, Operator
from abs_embedded.state.codecs import BYTES
from abs_embedded.state.contracts import NewBackend
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import encode_keys
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.rocks import RocksBackends
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

WORDS, BATCH = 125, 2_000
_ODD = np.arange(1, 2 * WORDS, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def entries(keys: pa.Array) -> pa.Array:
    """1000 bytes for each key, which nothing can compress."""
    words = keys.to_numpy().astype(np.uint64)[:, None] * _ODD
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(32)
    return pa.array(words.view(f"V{8 * WORDS}").ravel().tolist(), pa.binary())


class PutThenCompare(Operator):
    """Emits, for each batch, how many entries were there as they had been put."""

    def __init__(self, context: TaskContext, all_in: Event) -> None:
        self._state, self._all_in = context.value("large", BYTES), all_in

    def on_batch(self, port: int, batch: pa.RecordBatch, emit: Emit) -> None:
        keys, wanted = encode_keys([batch["key"]]), entries(batch["key"])
        found = self._state.get_array(keys)
        if found.null_count:
            self._state.put_array(keys, wanted)
        else:
            self._all_in.set()
        same = pc.sum(pc.equal(found, wanted)).as_py() or 0
        emit(pa.record_batch([[batch["key"][0].as_py()], [str(same)]], names=["id", "value"]))


def main(folder: Path, kind: str, limit_mb: int, size: int) -> None:
    goes_on = (folder / "snapshots" / "complete").exists()
    backend: NewBackend = HeapBackend if kind == "heap" else RocksBackends(folder / "rocks")
    sink = FakeSink(FakeTarget(folder / "target.db"), "2pc", "append")
    store = LocalSnapshotStore(folder / "snapshots")
    all_in, stop = Event(), Event()

    def watch(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and all_in.is_set() and not goes_on:
            stop.set()

    graph = Graph("large", parallelism=1)
    keys = pa.table({"key": np.tile(np.arange(size), 2)})
    (
        graph.source("keys", TableSource([keys], BATCH))
        .key_by("key")
        .apply("large", "compare", lambda context: PutThenCompare(context, all_in))
        .sink("out", sink)
    )
    limit = _mapped() + limit_mb * 1_000_000
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    often = Settings(interval=1.0)
    Job(graph, store, sink.register(), backend, settings=often, restarts=0, observe=watch).run(
        stop=stop
    )
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    said = {"resident MB": round(largest), "stopped": stop.is_set(), "went on": goes_on}
    sys.stdout.write(json.dumps(said) + "\n")


def _mapped() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
