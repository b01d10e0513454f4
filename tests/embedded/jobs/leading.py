"""A leader or its standby. Usage: leading.py FOLDER LEASE_SECONDS NAME; says when it leads."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event

from abs_core.registers import FileRegister
from abs_embedded import Job, Settings
from abs_embedded.lease import Lease, lead
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_testing.fakes import FakeSink, FakeTarget

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.embedded.jobs.counting import graph


def main(folder: Path, seconds: float, name: str) -> None:
    sink = FakeSink(FakeTarget(folder / "target.db"), "2pc", "append")
    lease = Lease(FileRegister(folder / "lease"), "counting", seconds, name)

    def run(stop: Event) -> None:
        Job(
            graph(sink, rows=24_000, batch_rows=4),
            LocalSnapshotStore(folder / "snapshots"),
            sink.register(),
            settings=Settings(interval=0.05),
        ).run(stop=stop)

    def leading() -> None:
        (folder / f"{name}.leads").write_text(str(time.monotonic()))

    lead(lease, run, Event(), leading)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
