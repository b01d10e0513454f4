"""The 2pc writer, from Arrow batches to PREPARE, against raw binary COPYs of the same rows.

Sides, each in one process per connection, connections kept over all runs:

- ``2pc writer``: ours; checks and encodes the batches, COPY, marker row, PREPARE TRANSACTION;
- ``raw + commit``: bytes that were encoded beforehand, COPY, COMMIT;
- ``raw + prepare``: the same bytes, COPY, PREPARE TRANSACTION;
- ``pgpq + commit``: raw COPY that encodes in the loop, with nothing checked: what any writer that
  begins from Arrow has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.lanes import Lanes
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.target import Target
from benchmarks.writer_lane import COMMIT, PGPQ, PREPARE, SIDES, WRITER, WriterLane

BAR = Bar(low=0.90)
ROWS = 1_000_000
CONNECTIONS = (1, 2)
WARM_UP = 2

_NOTES = (
    "raw sides send bytes that were encoded beforehand: that work is not in their time or CPU",
    "pgpq + commit encodes in the loop, and checks nothing",
    "connections are kept open on every side",
    "not timed: TRUNCATE and CHECKPOINT before each run, COMMIT PREPARED after it",
)


def run(target: Target, *, pairs: int, rows: int | None, tell: Tell) -> Iterator[Result]:
    """One result for one connection, one for two; ``rows`` are for each connection."""
    each = rows or ROWS
    for count in CONNECTIONS:
        with Lanes(WriterLane, target, count, each) as lanes:
            sides = [Side(name, _run_of(lanes, name)) for name in SIDES]
            samples = interleave(sides, pairs=pairs, warm_up=WARM_UP, tell=tell)
        yield Result(
            name=f"writer_vs_copy, {count} connection{'s' if count > 1 else ''}",
            unit="rows",
            samples=samples,
            comparisons=[
                Comparison(WRITER, COMMIT, BAR),
                Comparison(WRITER, PREPARE, BAR),
                Comparison(WRITER, PGPQ),
                Comparison(PGPQ, COMMIT),
            ],
            facts={"rows per connection": f"{each:,}"},
            notes=_NOTES,
        )


def _run_of(lanes: Lanes, name: str) -> Callable[[], Sample]:
    return lambda: lanes.run(name)
