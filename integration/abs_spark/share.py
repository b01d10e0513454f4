"""One task's share of one epoch: written and pre-committed, or drained."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pyarrow as pa

from abs_core.contracts import Task, Writer
from abs_core.events import PreCommitted
from abs_core.model import Drained, Share, Wrote
from abs_core.protocol import Skip
from abs_spark.run import Run
from abs_spark.schema import conform


def take_share(
    run: Run, epoch: int, partition: int, batches: Iterator[pa.RecordBatch], schema: pa.Schema
) -> Share:
    """Do what the register says of the epoch: write these batches, or only count their rows.

    Deduplication is of whole epochs (I8): whatever rows a replay gives to this partition, they are
    all written or all drained.

    Raises:
        AbsError: nothing of the share becomes visible.
    """
    state, plan = run.begin(epoch)
    if isinstance(plan, Skip):
        return Drained(sum(batch.num_rows for batch in batches))
    task = Task(
        register=state.register,
        job=state.job,
        generation=state.generation,
        epoch=epoch,
        partition=partition,
        attempt=secrets.token_hex(8),
    )
    return _write(run, task, batches, schema)


def _write(run: Run, task: Task, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Wrote:
    writer: Writer | None = None
    began = 0.0
    rows = 0
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:  # an empty share costs no transaction
                began = time.monotonic()
                writer = run.sink.writer(task)
            writer.write(conform(batch, schema))
            rows += batch.num_rows
        committable = None if writer is None else writer.pre_commit()
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    if committable is not None:
        seconds = time.monotonic() - began
        run.observe(PreCommitted(task.job, task.epoch, task.partition, rows, seconds))
    return Wrote(rows, committable)
