"""What the digest of rows costs (``replay=digest``): a task's share with it and without.

Sides, in one process with one connection that is kept: the 2pc writer of PostgreSQL from Arrow batches
to ``PREPARE TRANSACTION``, as it is and with the digest of each batch, whose time is noted apart: it is
what a task pays that drains an epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from statistics import median

from abs_core.contracts import Task
from abs_core.model import Committable
from abs_sinks.rowhash import empty_digest, row_digest
from benchmarks.lanes import Lanes, Parts, Stopwatch
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Sample
from benchmarks.report import Comparison, Result
from benchmarks.rows import SPARK_BATCH_ROWS, table
from benchmarks.sinks import make_sink
from benchmarks.target import Target

WITH, WITHOUT = "with digest", "without"
ROWS = 500_000


class DigestLane:
    """Batches and a connection, ready before anything is timed."""

    def __init__(self, target: Target, number: int, rows: int) -> None:
        self._number = number
        self._batches = table(rows, number * rows).to_batches(max_chunksize=SPARK_BATCH_ROWS)
        self._sink = make_sink(target, "2pc", self._batches[0].schema)
        self._committable: Committable | None = None

    def run(self, side: str) -> Parts:
        """A task's work on all rows, once."""
        watch = Stopwatch()
        seen = empty_digest(self._batches[0].schema)
        attempt = secrets.token_hex(8)
        writer = self._sink.writer(Task("0" * 16, "bench", 1, 0, self._number, attempt))
        for batch in self._batches:
            # As a task does it: the digest of a batch right after the batch is written.
            writer.write(batch)
            watch.lap("write")
            if side == WITH:
                seen += row_digest(batch)
                watch.lap("digest")
        self._committable = writer.pre_commit()
        watch.lap("end")
        return watch.parts

    def settle(self, side: str) -> None:
        """COMMIT PREPARED."""
        assert self._committable is not None
        self._sink.committer().commit([self._committable])


def run(target: Target, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """One result, of one connection."""
    each = rows or ROWS
    with Lanes(DigestLane, target, 1, each) as lanes:
        sides = [Side(name, _run_of(lanes, name)) for name in (WITH, WITHOUT)]
        samples = interleave(sides, pairs=pairs, warm_up=1, tell=tell)
    spent = median(dict(sample.parts)["digest"] for sample in samples[WITH])
    return Result(
        name="row_digest",
        unit="rows",
        samples=samples,
        comparisons=[Comparison(WITH, WITHOUT)],
        facts={"ns of the digest for each row (median)": round(spent / each * 1e9)},
        notes=["rows of four columns (bigint, text of 27 bytes, double, timestamp), no Spark"],
    )


def _run_of(lanes: Lanes, name: str) -> Callable[[], Sample]:
    return lambda: lanes.run(name)
