"""The job of ``counting.py`` into two targets at once. Usage: into_two.py FOLDER; prints ``done``."""

from __future__ import annotations

import sys
from pathlib import Path

from abs_core.registers import FileRegister
from abs_embedded import Job, Settings, Sinks
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_testing.fakes import FakeSink, FakeTarget
from tests.embedded.jobs.counting import graph

NAMES = ("left", "right")


def main(folder: Path) -> None:
    both = Sinks(
        {name: FakeSink(FakeTarget(folder / f"{name}.db"), "2pc", "append") for name in NAMES}
    )
    register = FileRegister(folder / "register")
    store = LocalSnapshotStore(folder / "snapshots")
    Job(graph(both), store, register, settings=Settings(interval=0.05)).run()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
