"""A leader is killed with SIGKILL; its standby sees the lease run out and goes on where it was."""

import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from threading import Event

import pyarrow as pa

from abs_core.registers import FileRegister
from abs_embedded import Graph, Job, Settings
from abs_embedded.lease import Lease, lead
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
is_first = sys.argv[2:] == ["first"]
target = FakeTarget(folder / "target.db")
sink = FakeSink(target, "2pc", "append")


def run(stop: Event) -> None:
    rows = pa.table({"id": list(range(20_000))})
    graph = Graph("led", parallelism=2)
    source = graph.source("rows", TableSource([rows], 10))
    source.map("text", lambda b: b.append_column("value", b[0].cast("string"))).sink("out", sink)
    store = LocalSnapshotStore(folder / "snapshots")
    Job(graph, store, sink.register(), settings=Settings(interval=0.05), observe=say).run(stop=stop)


def say(what: str, task: object, checkpoint: int) -> None:
    if is_first and what == "committed":
        print(checkpoint, flush=True)


lease = Lease(FileRegister(folder / "lease"), "led", 1.0, "first" if is_first else "standby")
if is_first:
    lead(lease, run, Event(), lambda: None)
else:
    command = [sys.executable, __file__, str(folder), "first"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout is not None
        committed = leader.stdout.readline().strip()
        leader.kill()
    took_over = lead(lease, run, Event(), lambda: print(f"leading, {committed} was committed"))
    with target.transaction() as db:
        found = sorted(id_ for (id_,) in db.execute("SELECT id FROM data"))
    assert took_over
    assert found == list(range(20_000)), "each row once"
