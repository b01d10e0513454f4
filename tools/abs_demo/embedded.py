"""The demo's job on the embedded runtime: the same flights, the same sink, and keyed state.

Every file is read twice, as an at-least-once feeder would deliver it; a keyed operator lets each
flight pass once. So the table is correct only if file positions, state and sink are of one moment,
through every kill. Runs as a process: ``python -m abs_demo.embedded``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa

from abs_core.source import Reader, Split
from abs_demo.flights import DAYS, KEY, ROWS, SCHEMA
from abs_demo.hops import JOB
from abs_demo.job import JobSettings
from abs_embedded import Graph, Job, Settings
from abs_embedded.context import TaskContext
from abs_embedded.operators import Stateless
from abs_embedded.state.codecs import INT64
from abs_embedded.state.keygroups import encode_keys
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.sink import PostgresSink
from abs_sources.files import FileOptions, FileSource
from abs_spark.process.logs import show_logs
from abs_spark.progress import observer


class Paced(FileSource):
    """Files for the embedded runtime, whose tasks are threads of one process.

    Args:
        rows: read between two checkpoints, plus one batch of each task.
        newest: the newest complete checkpoint, if any.
    """

    def __init__(
        self, options: FileOptions, schema: pa.Schema, rows: int, newest: Callable[[], int | None]
    ) -> None:
        super().__init__(options, schema)
        self._rows = rows
        self._newest = newest
        self._lock = threading.Lock()
        self._at: int | None = None
        self._left = rows

    def open(self, split: Split) -> Reader:
        return _PacedReader(super().open(split), self._may_read, self._took)

    def _may_read(self) -> bool:
        newest = self._newest()
        with self._lock:
            if newest != self._at:
                self._at, self._left = newest, self._rows
            return self._left > 0

    def _took(self, rows: int) -> None:
        with self._lock:
            self._left -= rows


class _PacedReader(Reader):
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


DAYS_PER_CHECKPOINT = 6
"""Days of flights between two checkpoints: half of what the kills are planned by."""

INTERVAL_S = 0.2
_TASKS = 2
_SOURCES = ("flights", "flights-again")
_BATCH_ROWS = 500


def first_of_each(context: TaskContext) -> Stateless:
    """Lets the first row of each flight pass."""
    seen = context.value("seen", INT64)

    def pass_on(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        keys = encode_keys([batch.column(name) for name in KEY])
        fresh: dict[bytes, int] = {}
        for place, (key, earlier) in enumerate(zip(keys, seen.get_many(keys), strict=True)):
            if earlier is None:
                fresh.setdefault(key, place)
        seen.put_many(list(fresh), [1] * len(fresh))
        return [batch.take(list(fresh.values()))] if fresh else []

    return Stateless(pass_on)


def flights_job(settings: JobSettings) -> Job:
    """The whole job; after a kill it continues from its last decision."""
    graph = Graph(JOB, parallelism=_TASKS)
    file_options = {"path": str(settings.input), "batchsize": str(_BATCH_ROWS)}
    files = FileOptions.parse(file_options, streaming=False)
    store = LocalSnapshotStore(settings.checkpoint)
    first, *others = (graph.source(name, paced(files, store)) for name in _SOURCES)
    both = first.union("both", *others)
    options = PostgresOptions.parse(settings.places.table(settings.protocol))
    both.key_by(*KEY).apply("first", "first of each", first_of_each).sink(
        "table", PostgresSink(options, SCHEMA)
    )
    return Job(
        graph,
        store,
        settings=Settings(interval=INTERVAL_S),
        events=observer(settings.protocol),
    )


def paced(files: FileOptions, store: LocalSnapshotStore) -> Paced:
    """The source, slowed down so that there are enough checkpoints for the kills."""
    rows = round(DAYS_PER_CHECKPOINT * ROWS / DAYS)
    return Paced(files, SCHEMA, rows, lambda: max(store.completed(), default=None))


if __name__ == "__main__":
    show_logs()
    flights_job(JobSettings.here()).run()
