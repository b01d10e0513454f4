"""A source over Arrow tables in memory, for tests, examples and small jobs.

Replayable if the tables are the same at each start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from abs_core.errors import ReplayMismatchError
from abs_core.source import Limit, Offsets, Reader, Source, Split


@dataclass(frozen=True)
class TableSource(Source):
    """One split per table, all of one schema; ``batch_rows`` limits a batch."""

    tables: Sequence[pa.Table]
    batch_rows: int = 1024

    @property
    def schema(self) -> pa.Schema:
        return self.tables[0].schema

    def initial(self) -> Offsets:
        return '"begin"'

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        return '"end"'

    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        return [Split(str(n), "0", str(t.num_rows)) for n, t in enumerate(self.tables)]

    def open(self, split: Split) -> TableReader:
        return TableReader(self.tables[int(split.source)], split, self.batch_rows)


class TableReader(Reader):
    """Reads one table from a row on."""

    def __init__(self, table: pa.Table, split: Split, batch_rows: int) -> None:
        if split.end is not None and int(split.end) > table.num_rows:
            raise ReplayMismatchError(
                f"The table {split.source} has {table.num_rows} rows, and had {split.end} when "
                "the job began.",
                remedy="give the job the tables that it began with.",
            )
        self._table, self._split, self._batch_rows = table, split, batch_rows
        self._at = int(split.start)
        self._end = table.num_rows if split.end is None else int(split.end)

    @property
    def position(self) -> Split:
        return Split(self._split.source, str(self._at), self._split.end)

    @property
    def finished(self) -> bool:
        return self._at >= self._end

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        if self.finished:
            return None
        part = self._table.slice(self._at, min(self._batch_rows, self._end - self._at))
        batch = part.combine_chunks().to_batches()[0]  # not all of it, if it has more than 2 GiB
        self._at += batch.num_rows
        return batch

    def close(self) -> None:
        pass
