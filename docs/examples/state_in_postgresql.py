"""Keyed state in PostgreSQL, three ways: versions of rows, prepared transactions, opaque values.

A restart loads nothing. Usage: state_in_postgresql.py FOLDER URL; the server needs
`max_prepared_transactions` above 0 for the second way.
"""

import sys
from pathlib import Path
from threading import Event

import pyarrow as pa

from abs_clients.postgres.address import Server
from abs_embedded import Graph, Job, Settings
from abs_embedded.state.contracts import NewBackend
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.stores.postgres.mvcc import mvcc_backends
from abs_embedded.stores.postgres.opaque import opaque_backends
from abs_embedded.stores.postgres.two_phase import two_phase_backends
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

server = Server.at(sys.argv[2])
rows = pa.table({"key": [n % 5 for n in range(5_000)]})


def run(name: str, backend: NewBackend) -> None:
    folder = Path(sys.argv[1]) / name
    folder.mkdir(parents=True)
    target = FakeTarget(folder / "target.db")
    sink = FakeSink(target, "2pc", "append")
    for stop in (Event(), Event()):  # stopped after its first decision, and started again

        def watch(what: str, task: object, checkpoint: int, stop: Event = stop) -> None:
            if what == "committed" and checkpoint == 0:
                stop.set()

        graph = Graph(f"in-{name}", parallelism=2)
        (
            graph.source("rows", TableSource([rows], 20))
            .key_by("key")
            .reduce("count", "count")
            .map("o", lambda b: pa.record_batch([b[1], b[0].cast("string")], ["id", "value"]))
            .sink("out", sink)
        )
        store, often = LocalSnapshotStore(folder / "snapshots"), Settings(interval=0.05)
        Job(graph, store, sink.register(), backend, settings=often, observe=watch).run(stop=stop)
    with target.transaction() as db:
        found = dict(db.execute("SELECT value, max(id) FROM data GROUP BY value"))
    assert found == {str(key): 1_000 for key in range(5)}, found
    print(name, found)


run("mvcc", mvcc_backends(server))
run("2pc", two_phase_backends(server))
run("opaque", opaque_backends(server))
