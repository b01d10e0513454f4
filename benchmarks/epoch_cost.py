"""What an epoch costs at number 10 and at number 2,000, sink and coordinator only, without Spark.

Two jobs in two databases of one server: the old one has written 2,000 epochs, the young one 10. Then
they take turns, a few epochs each, so that what is compared ran in the same minute. Each epoch has
two tasks of 100 rows: what is paid per epoch, not per row, is nearly all of it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

import psycopg

from abs_core.codec import state_to_text
from abs_core.contracts import Sink, Task
from abs_core.coordinator import Coordinator, Report
from abs_core.model import Wrote
from abs_core.protocol import RunIdentity, Write
from abs_services import PostgresService
from benchmarks import rows
from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.sinks import PROTOCOLS, make_sink
from benchmarks.target import Arrivals, Target, fresh_target

YOUNG, OLD = 10, 2_000
TURN = 5
"""Epochs in a row for each side: CPU time has a resolution of 10 ms."""
TASKS, TASK_ROWS = 2, 100
BAR = Bar(low=0.9)


@dataclass
class SmallJob:
    """One run of a job on a sink, epoch after epoch, all tasks in this process one by one."""

    sink: Sink
    target: Arrivals
    coordinator: Coordinator
    epochs: int = 0
    seconds: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, sink: Sink, target: Arrivals) -> SmallJob:
        who = RunIdentity("bench", secrets.token_hex(8), secrets.token_hex(8), sink.target_id)
        coordinator = Coordinator(who, sink.register(), sink.committer(), fence=sink.fence)
        return cls(sink, target, coordinator)

    def turn(self) -> Sample:
        """``TURN`` epochs; the sample's amount is their number."""
        with metered(self.target.pid) as taken:
            for _ in range(TURN):
                self.epoch()
        seconds = self.seconds[-TURN:]
        return Sample(sum(seconds), taken.cpu_s, TURN, (("median of an epoch", median(seconds)),))

    def reach(self, epoch: int) -> None:
        """Write epochs until ``epoch`` is the next one."""
        while self.epochs < epoch:
            self.epoch()

    def epoch(self) -> None:
        """One epoch: begin, write, pre-commit in each task; then commit."""
        number = self.epochs
        first = number * TASKS * TASK_ROWS
        batches = [
            rows.table(TASK_ROWS, first + part * TASK_ROWS).to_batches()[0] for part in range(TASKS)
        ]
        began = time.perf_counter()
        shares = []
        for part, batch in enumerate(batches):
            state, planned = self.coordinator.begin(number)
            assert isinstance(planned, Write)
            attempt = secrets.token_hex(6)
            task = Task(state.register, state.job, state.generation, number, part, attempt)
            writer = self.sink.writer(task)
            writer.write(batch)
            shares.append(Wrote(TASK_ROWS, writer.pre_commit()))
        self.coordinator.commit(Report(number, shares, fingerprint=secrets.token_hex(16)))
        self.seconds.append(time.perf_counter() - began)
        self.epochs += 1

    def check(self) -> None:
        """Every row of every epoch is there, once."""
        if (found := self.target.count()) != self.epochs * TASKS * TASK_ROWS:
            raise AssertionError(f"{found} rows in the table after {self.epochs} epochs")

    def register_bytes(self) -> int:
        """Size of the job's state, as the register keeps it."""
        stored = self.sink.register().load("bench")
        assert stored is not None
        return len(state_to_text(stored.state))


def run(postgres: PostgresService, *, pairs: int, tell: Tell) -> Iterator[Result]:
    """One result for each protocol; ``pairs`` turns of :data:`TURN` epochs on each side."""
    for protocol in PROTOCOLS:
        keyed = protocol == "idempotent"
        with fresh_target(postgres, keyed=keyed) as a, fresh_target(postgres, keyed=keyed) as b:
            yield _compare(protocol, a, b, pairs, tell)


def _compare(protocol: str, here: Target, there: Target, pairs: int, tell: Tell) -> Result:
    schema = rows.table(1).schema
    young = SmallJob.start(make_sink(here, protocol, schema), here)
    old = SmallJob.start(make_sink(there, protocol, schema), there)
    young.reach(YOUNG)
    old.reach(OLD)
    sizes = {"young": _sizes(young, here), "old": _sizes(old, there)}
    names = f"epoch {OLD:,}", f"epoch {YOUNG}"
    sides = [Side(names[0], old.turn), Side(names[1], young.turn)]
    samples = interleave(sides, pairs=pairs, warm_up=0, tell=tell)
    old.check()
    young.check()
    per_epoch = {n: [s.wall_s / s.amount * 1e3 for s in found] for n, found in samples.items()}
    facts: dict[str, object] = {
        f"ms of an epoch at {name} (median)": round(median(ms), 2) for name, ms in per_epoch.items()
    }
    facts |= {f"{what} ({name})": n for name, s in sizes.items() for what, n in s.items()}
    facts["ms of an epoch of the old job, medians of 200 epochs each"] = [
        round(median(old.seconds[at : at + 200]) * 1e3, 2) for at in range(0, OLD, 200)
    ]
    young.sink.close()
    old.sink.close()
    return Result(
        name=f"epoch_cost, {protocol}",
        unit="epochs",
        samples=samples,
        comparisons=[Comparison(*names, BAR)],
        facts=facts,
        notes=[f"{TASKS} tasks of {TASK_ROWS} rows, one after the other; no Spark"],
    )


_CATALOG_BYTES = """
SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
 WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r' AND NOT c.relisshared
"""
_STATE_BYTES = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'abs' AND c.relkind = 'r'
"""


def _sizes(job: SmallJob, target: Target) -> dict[str, int]:
    with psycopg.connect(target.admin_url) as admin:
        catalog = admin.execute(_CATALOG_BYTES).fetchone()
        state = admin.execute(_STATE_BYTES).fetchone()
    assert catalog is not None
    assert state is not None
    return {
        "register bytes": job.register_bytes(),
        "catalog bytes": catalog[0],
        "state schema bytes": state[0],
    }
