"""A source that limits how far it reads ahead of its job's checkpoints.

The demo plans its kills by epochs, so their number must not depend on the machine's speed, as it
would with a pace in seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from abs_core.source import Limit, Offsets, Reader, Source, Split


class Paced:
    """A ``Source`` for the embedded runtime, whose tasks are threads of one process.

    Args:
        rows: read between two checkpoints, plus one batch of each task.
        newest: the newest complete checkpoint, if any.
    """

    def __init__(self, source: Source, rows: int, newest: Callable[[], int | None]) -> None:
        self._source = source
        self._rows = rows
        self._newest = newest
        self._lock = threading.Lock()
        self._at: int | None = None
        self._left = rows

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    def initial(self) -> Offsets:
        return self._source.initial()

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        return self._source.latest(start, limit)

    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        return self._source.splits(start, end)

    def open(self, split: Split) -> Reader:
        return _PacedReader(self._source.open(split), self._may_read, self._took)

    def _may_read(self) -> bool:
        newest = self._newest()
        with self._lock:
            if newest != self._at:
                self._at, self._left = newest, self._rows
            return self._left > 0

    def _took(self, rows: int) -> None:
        with self._lock:
            self._left -= rows


class _PacedReader:
    def __init__(
        self, reader: Reader, may_read: Callable[[], bool], took: Callable[[int], None]
    ) -> None:
        self._reader = reader
        self._may_read = may_read
        self._took = took

    @property
    def position(self) -> Split:
        return self._reader.position

    @property
    def finished(self) -> bool:
        return self._reader.finished

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        if not self._may_read():
            time.sleep(timeout_seconds)
            return None
        batch = self._reader.read(timeout_seconds)
        self._took(0 if batch is None else batch.num_rows)
        return batch

    def close(self) -> None:
        self._reader.close()
