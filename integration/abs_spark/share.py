"""One task's share of one epoch: written and pre-committed, or drained."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pyarrow as pa

from abs_core.certificate import Origin
from abs_core.contracts import Task, Writer
from abs_core.errors import TargetError
from abs_core.events import PreCommitted
from abs_core.model import Drained, JobState, Share, Wrote
from abs_core.protocol import Skip, Write
from abs_core.rowdigest import is_row_digest
from abs_sinks.rowhash import empty_digest, row_digest
from abs_spark.message import EpochMessage
from abs_spark.names import Announced, RunName
from abs_spark.run import Run, attach
from abs_spark.schema import conform
from abs_spark.settled import settle
from abs_spark.start import warn
from abs_spark.target import Target


def take_part(
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
    """A task's whole work for one epoch; what it tells the commit process.

    Deduplication is of whole epochs (I8): whatever rows a replay gives to this partition, they are
    all written or all drained.

    Args:
        origin: what the checkpoint told of the job before this epoch's tasks began.
        digests: whether an epoch that comes again can be told by nothing but its rows.

    Raises:
        AbsError: nothing of the task's rows becomes visible.
    """
    run = attach(target, name)
    state, plan = run.begin(epoch, origin)
    share = _take_share(run, state, plan, epoch, partition, batches, target, digests=digests)
    started = run.has_started_in(epoch)
    warnings = run.warnings if started and not announced.checked else ()
    warn(warnings)
    settle()
    return EpochMessage(name, epoch, share, started, announced, warnings)


def _take_share(
    run: Run,
    state: JobState,
    plan: Write | Skip,
    epoch: int,
    partition: int,
    batches: Iterator[pa.RecordBatch],
    target: Target,
    *,
    digests: bool,
) -> Share:
    if isinstance(plan, Skip):
        recorded = state.record(epoch)
        by_rows = recorded is not None and is_row_digest(recorded.fingerprint)
        wanted = by_rows and target.options.common.replay == "digest"
        return _drain(batches, target.schema, digest=wanted)
    task = Task(
        register=state.register,
        job=state.job,
        generation=state.generation,
        epoch=epoch,
        partition=partition,
        attempt=secrets.token_hex(8),
        frontier=state.frontier,
        abandoned=state.abandoned,
    )
    return _write(run, task, batches, target.schema, digest=digests)


def _drain(batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, digest: bool) -> Drained:
    seen = empty_digest(schema) if digest else None
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if seen is not None:
            seen += row_digest(conform(batch, schema))
    return Drained(rows, seen)


def _write(
    run: Run, task: Task, batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, digest: bool
) -> Wrote:
    writer: Writer | None = None
    seen = empty_digest(schema) if digest else None
    began = 0.0
    rows = 0
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:  # an empty share costs no transaction
                began = time.monotonic()
                writer = run.sink.writer(task)
            fitting = conform(batch, schema)
            writer.write(fitting)
            rows += batch.num_rows
            if seen is not None:
                seen += row_digest(fitting)
        committable = None if writer is None else writer.pre_commit()
    except BaseException as error:
        if writer is not None:
            writer.abort()
        if isinstance(error, TargetError):
            # A newer run ends what older ones have in flight: then that is the reason to name.
            run.raise_if_fenced(error)
        raise
    if committable is not None:
        seconds = time.monotonic() - began
        run.observe(PreCommitted(task.job, task.epoch, task.partition, rows, seconds))
    return Wrote(rows, committable, seen)
