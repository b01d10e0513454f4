"""A lane of ``writer_vs_copy``: one process with one connection for each of its sides."""

from __future__ import annotations

import secrets

import psycopg

from abs_core.contracts import Task
from abs_core.model import Committable
from benchmarks import raw_copy
from benchmarks.lanes import Parts, Stopwatch
from benchmarks.rows import SPARK_BATCH_ROWS, table
from benchmarks.sinks import make_sink
from benchmarks.target import Target

WRITER, COMMIT, PREPARE, PGPQ = "2pc writer", "raw + commit", "raw + prepare", "pgpq + commit"
SIDES = (WRITER, COMMIT, PREPARE, PGPQ)


class WriterLane:
    """Batches, their encoded bytes and a connection, ready before anything is timed."""

    def __init__(self, target: Target, number: int, rows: int) -> None:
        self._number = number
        self._batches = table(rows, number * rows).to_batches(max_chunksize=SPARK_BATCH_ROWS)
        self._bytes = raw_copy.encoded(self._batches)
        self._connection = psycopg.connect(target.url)
        self._sink = make_sink(target, "2pc", self._batches[0].schema)
        self._gid = ""
        self._committable: Committable | None = None

    def run(self, side: str) -> Parts:
        """Write all rows once, as the side does it."""
        watch = Stopwatch()
        if side == WRITER:
            self._write(watch)
        else:
            pieces = raw_copy.encoding(self._batches) if side == PGPQ else self._bytes
            raw_copy.copy(self._connection, pieces)
            watch.lap("copy")
            self._end(side)
            watch.lap("end")
        return watch.parts

    def settle(self, side: str) -> None:
        """COMMIT PREPARED, where the side left a prepared transaction."""
        if side == WRITER:
            assert self._committable is not None
            self._sink.committer().commit([self._committable])
        elif side == PREPARE:
            raw_copy.commit_prepared(self._connection, self._gid)

    def _write(self, watch: Stopwatch) -> None:
        attempt = secrets.token_hex(8)
        writer = self._sink.writer(Task("0" * 16, "bench", 1, 0, self._number, attempt))
        for batch in self._batches:
            writer.write(batch)
        watch.lap("copy")
        self._committable = writer.pre_commit()
        watch.lap("end")

    def _end(self, side: str) -> None:
        if side == PREPARE:
            self._gid = f"bench-{secrets.token_hex(8)}"
            raw_copy.prepare(self._connection, self._gid)
        else:
            self._connection.commit()
