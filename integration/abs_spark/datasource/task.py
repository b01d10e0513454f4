"""A task of a format ``abs-...``: it starts the run if need be, plans, and writes to its one sink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from abs_core.certificate import Origin
from abs_core.model import Share
from abs_core.protocol import Skip
from abs_core.rowdigest import is_row_digest
from abs_spark.names import Announced, RunName
from abs_spark.process.executor import reaching
from abs_spark.process.gc_tuning import tune_gc
from abs_spark.run import attach
from abs_spark.share import SinkShare, TaskOutput, take_shares, task_of, to_one
from abs_spark.start import warn
from abs_spark.target import Target


@dataclass(frozen=True)
class EpochMessage(WriterCommitMessage):
    """A task's share of an epoch. Some hundred bytes and its columns' digests, no secret (I9).

    Args:
        name: the task's run.
        started: whether this task raised the generation in this epoch.
        announced: what the planner has already shown.
        warnings: of the task's preflight, if the planner made none.
        readable: whether the planner could read the checkpoint.
    """

    name: RunName
    epoch: int
    share: Share
    started: bool
    announced: Announced
    warnings: tuple[str, ...] = ()
    readable: bool = False


def run_task(
    target: Target,
    name: RunName,
    epoch: int,
    partition: int,
    batches: Iterator[pa.RecordBatch],
    announced: Announced,
    origin: Origin,
    *,
    digests: bool,
) -> EpochMessage:
    """Do a task's work for one epoch and return its message to the commit process.

    Args:
        origin: read from the checkpoint before this epoch's tasks began.
        digests: whether a replay can be recognised by its rows only.

    Raises:
        AbsError: nothing of the task's rows becomes visible.
    """
    with reaching():  # to build a run is to ask the target who it is
        run = attach(target, name)
    run.reach()
    state, plan = run.begin(epoch, origin)
    task = task_of(state, epoch, partition)
    out = None
    if isinstance(plan, Skip):
        recorded = state.record(epoch)
        by_rows = recorded is not None and is_row_digest(recorded.fingerprint)
        digests = by_rows and target.options.common.replay == "digest"
    else:
        out = TaskOutput(lambda: run.sink.writer(task), to_one, task, (partition, ""), run.observe)
    sink = SinkShare(target.schema, out, digests=digests)
    [share] = take_shares([sink], batches, task, run.sink.register)
    started = run.has_started_in(epoch)
    warnings = run.warnings if started and not announced.checked else ()
    warn(warnings)
    tune_gc()
    return EpochMessage(name, epoch, share, started, announced, warnings)
