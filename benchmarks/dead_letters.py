"""The option ``deadletter`` where no row is bad, against the same job without it; no Spark.

Each run is one epoch of two tasks that append, in batches of Spark's size.
"""

from __future__ import annotations

from benchmarks.one_epoch import Job
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.rows import SPARK_BATCH_ROWS, table
from benchmarks.target import Target

BAR = Bar(low=0.9)
ROWS = 400_000
TASKS = 2


def run(target: Target, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """Compare both protocols that append, each with the option and without."""
    count = rows or ROWS
    made = table(count).combine_chunks()
    share = -(-count // TASKS)
    parts = [
        made.slice(part * share, share).to_batches(max_chunksize=SPARK_BATCH_ROWS)
        for part in range(TASKS)
    ]

    def side(protocol: str, more: dict[str, str], name: str) -> Side:
        job = Job(target, name, {"protocol": protocol, **more}, made.schema)

        def once() -> Sample:
            target.reset()
            return job.run(parts)

        return Side(name, once)

    sides, comparisons = [], []
    for protocol in ("2pc", "wal"):
        with_option = f"{protocol} with deadletter"
        sides.append(side(protocol, {}, protocol))
        sides.append(side(protocol, {"deadletter": "bench_dead"}, with_option))
        comparisons.append(Comparison(with_option, protocol, BAR))
    return Result(
        name="dead_letters",
        unit="rows",
        samples=interleave(sides, pairs=pairs, warm_up=1, tell=tell),
        comparisons=comparisons,
        facts={"rows of an epoch": f"{count:,}"},
        notes=("no row is bad; not timed: TRUNCATE and CHECKPOINT before each run",),
    )
