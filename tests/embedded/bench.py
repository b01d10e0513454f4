"""What the tests of real runs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from abs_embedded import Graph, Job, Settings
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_testing.case import within
from abs_testing.fakes import FakeSink, FakeTarget
from abs_testing.harness import SCHEMA
from tests.embedded.jobs.counting import expected

OFTEN = Settings(interval=0.02)


class Bench:
    """A target, a register in it, and a snapshot store."""

    def __init__(self, folder: Path) -> None:
        self.target = FakeTarget(folder / "target.db")
        self.sink = FakeSink(self.target, "2pc", "append")
        self.store = LocalSnapshotStore(folder / "snapshots")
        self.savepoints = LocalSnapshotStore(folder / "savepoints")

    def job(self, what: Graph, strategy: str = "aligned", **more: object) -> Job:
        more.setdefault("settings", OFTEN)
        return Job(what, self.store, self.sink.register(), strategy=strategy, **more)  # type: ignore[arg-type]

    def rows(self) -> list[tuple[int, str]]:
        with self.target.transaction() as db:
            found: list[tuple[int, str]] = db.execute("SELECT id, value FROM data").fetchall()
        return found

    def prepared(self) -> int:
        with self.target.transaction() as db:
            return int(db.execute("SELECT count(*) FROM prepared").fetchone()[0])

    def check(self, rows: int) -> None:
        ids, values = expected(rows)
        found = self.rows()
        assert sorted(id_ for id_, _ in found) == ids
        assert sorted(value for _, value in found) == values
        assert self.prepared() == 0


def as_text(name: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function for ``map``: key and this column, as the sink's rows are."""
    return lambda b: pa.record_batch([b["key"], b[name].cast(pa.string())], schema=SCHEMA)


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    assert within(60, holds)
