"""The pace of the embedded demo: by the job's checkpoints, so that there are as many as kills need."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from abs_core.source import Limit
from abs_demo.embedded import Paced
from abs_sources.files import FileOptions

BATCH = 5
ROWS = 2 * BATCH
SCHEMA = pa.schema([("id", pa.int64())])


class Job:
    """Its newest checkpoint, and what its only task has read."""

    def __init__(self, folder: Path) -> None:
        pq.write_table(pa.table({"id": range(5 * ROWS)}, SCHEMA), folder / "rows.parquet")
        given = {"path": str(folder), "fileformat": "parquet", "batchsize": str(BATCH)}
        options = FileOptions.parse(given, streaming=False)
        self.newest: int | None = None
        source = Paced(options, SCHEMA, ROWS, lambda: self.newest)
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
    assert rows == 5 * ROWS
