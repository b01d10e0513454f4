"""``write=changes`` against ``upsert``: the same rows into the same table, sink and coordinator only.

Each run is one epoch of two tasks under ``wal``: every row of the table is updated, and none of them
conflicts. Changes have an operation and a position beside the columns of an upsert; with ``side`` the
positions are kept in a table of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from benchmarks import rows
from benchmarks.one_epoch import postgres_job
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


class Updates:
    """A job that updates every row of the table with each epoch."""

    def __init__(self, target: Target, name: str, count: int) -> None:
        self._name, self._count, self._epoch = name, count, 0
        options = {"protocol": "wal", **WAYS[name]}
        self._job = postgres_job(target, name, options, self._batches()[0].schema)

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
        """One epoch: it finds rows of lower positions."""
        batches = self._batches()
        self._epoch += 1
        return self._job.run([[batch] for batch in batches])


def run(fresh: Callable[[], Target], *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """Compare the three, each on a table of its own.

    Args:
        fresh: opens a new keyed table.
    """
    count = rows or ROWS
    jobs = {name: Updates(fresh(), name, count) for name in WAYS}
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
