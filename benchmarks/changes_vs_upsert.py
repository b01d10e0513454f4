"""``write=changes`` against ``upsert``: the same rows into the same table, sink and coordinator only.

Each run is one epoch of two tasks under ``wal``: every row of the table is updated, and none of them
conflicts. Changes have an operation and a position beside the columns of an upsert; with ``side`` the
positions are kept in a table of their own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.coordinator import Coordinator, Report
from abs_core.model import Wrote
from abs_core.protocol import RunIdentity, Write
from abs_sinks.postgres import PostgresOptions, PostgresSink
from benchmarks import rows
from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.target import Target

BAR = Bar(low=0.8)
ROWS = 200_000
TASKS = 2
WAYS = {
    "upsert": {"write": "upsert", "key": "id"},
    "changes": {"write": "changes", "sequenceby": "at"},
    "changes_side": {"write": "changes", "sequenceby": "position", "positions": "side"},
}


class Job:
    """A job that updates every row of the table with each epoch."""

    def __init__(self, target: Target, name: str, count: int) -> None:
        self._target, self._name, self._count, self._epoch = target, name, count, 0
        given = {"stateschema": "abs", "protocol": "wal", **WAYS[name]}
        self._sink = PostgresSink(
            PostgresOptions.parse(target.options | given), self._batches()[0].schema
        )
        who = RunIdentity(name, secrets.token_hex(8), secrets.token_hex(8), self._sink.target)
        register, committer = self._sink.register(), self._sink.committer()
        self._coordinator = Coordinator(who, register, committer, fence=self._sink.fence)

    def _batches(self) -> list[pa.RecordBatch]:
        made = rows.table(self._count)
        if self._name != "upsert":
            made = made.append_column("op", pa.array(["u"] * self._count))
        if self._name == "changes_side":
            made = made.append_column("position", pa.array([self._epoch] * self._count, pa.int64()))
        moved = pa.array(made["at"].cast(pa.int64()).to_numpy() + self._epoch)
        made = made.set_column(3, "at", moved.cast(pa.timestamp("us", tz="UTC")))
        size = -(-self._count // TASKS)
        return list(made.combine_chunks().to_batches(max_chunksize=size))

    def run(self) -> Sample:
        """One epoch."""
        # Each side finds the rows of the side before: of a lower position, as the epochs rise.
        batches, number = self._batches(), self._epoch
        self._epoch += 1
        with metered(self._target.pid) as taken:
            began = time.perf_counter()
            shares = []
            for part, batch in enumerate(batches):
                state, planned = self._coordinator.begin(number)
                assert isinstance(planned, Write), "each epoch is new"
                attempt = secrets.token_hex(6)
                who = state.register, state.job, state.generation
                writer = self._sink.writer(Task(*who, number, part, attempt))
                writer.write(batch)
                shares.append(Wrote(batch.num_rows, writer.pre_commit()))
            self._coordinator.commit(Report(number, shares, fingerprint=secrets.token_hex(16)))
            seconds = time.perf_counter() - began
        return Sample(seconds, taken.cpu_s, self._count)


def run(fresh: Callable[[], Target], *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """Compare the three, each on a table of its own.

    Args:
        fresh: opens a new keyed table.
    """
    count = rows or ROWS
    jobs = {name: Job(fresh(), name, count) for name in WAYS}
    sides = [Side(name, job.run) for name, job in jobs.items()]
    samples = interleave(sides, pairs=pairs, warm_up=2, tell=tell)
    return Result(
        name="changes_vs_upsert",
        unit="rows",
        samples=samples,
        comparisons=[Comparison(name, "upsert", BAR) for name in list(WAYS)[1:]],
        facts={"rows of an epoch": f"{count:,}"},
        notes=("one epoch under wal updates every row; no Spark",),
    )
