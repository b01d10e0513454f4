"""The pace of the embedded demo: by the job's checkpoints, so that there are as many as kills need."""

from __future__ import annotations

from pathlib import Path

from abs_core.source import Limit
from abs_demo.embedded import Paced
from tests.kit.fake_source import BATCH, FakeSource, FakeSourceHarness

ROWS = 2 * BATCH


class Job:
    """Its newest checkpoint, and what its only task has read."""

    def __init__(self, folder: Path) -> None:
        FakeSourceHarness(folder).add(10 * ROWS)
        self.newest: int | None = None
        source = Paced(FakeSource(folder), ROWS, lambda: self.newest)
        start = source.initial()
        self._reader = source.open(source.splits(start, source.latest(start, Limit()))[0])

    def reads(self) -> int:
        """Rows that are read until nothing comes."""
        rows = 0
        while (batch := self._reader.read(0.0)) is not None:
            rows += batch.num_rows
        return rows

    @property
    def finished(self) -> bool:
        return self._reader.finished


def test_no_more_is_read_until_a_checkpoint_is_complete(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.reads() == ROWS
    assert job.reads() == 0
    job.newest = 3
    assert job.reads() == ROWS
    assert not job.finished


def test_all_is_read_in_the_end(tmp_path: Path) -> None:
    job = Job(tmp_path)
    rows = 0
    for checkpoint in range(20):
        rows += job.reads()
        job.newest = checkpoint
    assert job.finished
    assert rows == 5 * ROWS, "the first of the two lists"
