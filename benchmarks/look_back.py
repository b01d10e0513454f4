"""What the look at the last epochs' marks before each decision costs, by system; no Spark.

    eval "$(abs up postgres kafka)"; ABS_SERVICES=external python -m benchmarks.look_back

Two jobs take turns, a few epochs of three rows each: one looks, and one does not. The register of
PostgreSQL's lies in memory, as with its own there is nothing to compare. CPU is of this process alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from abs_core.contracts import Committer
from abs_core.lookback import LookedBack, Past
from abs_services import fresh_database, services
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_testing.behind import CommitterBehind, SinkBehind
from abs_testing.case import Case, rows
from abs_testing.fault_injection import Wire
from benchmarks.ratios import Sample
from tests.kit.kafka_modes import open_variant
from tests.sinks.lake.conftest import in_folder

TURN, ROUNDS, WARM_UP = 10, 12, 2

Opened = Callable[[], AbstractContextManager[Any]]


class Blind(CommitterBehind):
    """A committer that does not look back."""

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        return ()


class BlindSink(SinkBehind):
    def committer(self) -> Committer:
        return Blind(self._inner.committer(), self._wire)


class Job:
    """A run that goes on and on."""

    def __init__(self, stack: ExitStack, opened: Opened, sink: type[SinkBehind]) -> None:
        harness = stack.enter_context(opened())
        made = harness.new_sink
        harness.new_sink = lambda: sink(made(), Wire())
        self._run = stack.enter_context(Case(harness)).run()
        self._epoch = 0

    def turn(self) -> Sample:
        began, busy = time.perf_counter(), time.process_time()
        for _ in range(TURN):
            self._run.epoch(self._epoch, rows(3 * self._epoch, 3))
            self._epoch += 1
        return Sample(time.perf_counter() - began, time.process_time() - busy, TURN)


def costs(opened: Opened) -> list[float]:
    """CPU ms of an epoch and of its look, then elapsed ms; medians over the rounds."""
    with ExitStack() as stack:
        jobs = [Job(stack, opened, kind) for kind in (SinkBehind, BlindSink)]
        taken: list[list[tuple[float, float]]] = [[], []]
        for turn in range(WARM_UP + ROUNDS):
            for side in (0, 1) if turn % 2 else (1, 0):
                sample = jobs[side].turn()
                ms = 1000 / sample.amount
                taken[side].append((sample.cpu_s * ms, sample.wall_s * ms))
    looking, other = (side[WARM_UP:] for side in taken)
    figures = []
    for of_cpu_or_wall in (0, 1):
        mine = [sample[of_cpu_or_wall] for sample in looking]
        more = [ms - sample[of_cpu_or_wall] for ms, sample in zip(mine, other, strict=True)]
        figures += [median(mine), median(more)]
    return figures


def main() -> None:
    """Measure and print."""
    with ExitStack() as stack:
        postgres = stack.enter_context(services().postgres())
        database = stack.enter_context(fresh_database(postgres))
        broker = stack.enter_context(services().kafka()).bootstrap
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abs-look-")))
        foreign = ("2pc-append-foreign-register", "wal-append-foreign-register")
        ways: Mapping[str, Opened] = {
            **{f"postgres {n}": partial(open_table, database, VARIANTS[n]) for n in foreign},
            **{
                f"kafka {name}": partial(open_variant, broker, name)
                for name in ("2pc", "wal", "idempotent")
            },
            **{kind: in_folder(kind, folder) for kind in ("delta", "iceberg")},
        }
        table = Table("sink", "CPU ms of an epoch", "of its look", "ms of an epoch", "of its look")
        for name, opened in ways.items():
            table.add_row(name, *(f"{ms:.1f}" for ms in costs(opened)))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
