"""Events of the protocol as log lines and OpenTelemetry metrics.

Uses OpenTelemetry's API only: without a configured SDK the instruments do nothing. Events occur once
per task and epoch, never per row or batch.
"""

from __future__ import annotations

import logging

from opentelemetry import metrics

from abs_core.events import (
    Abandoned,
    Committed,
    Ended,
    Event,
    NotCertified,
    Observer,
    PreCommitted,
    RolledForward,
    Skipped,
    Started,
    SweepFailed,
    Swept,
)

_start = logging.getLogger("abs_spark.start")
_recovery = logging.getLogger("abs_spark.recovery")
_epoch = logging.getLogger("abs_spark.epoch")
_progress = logging.getLogger("abs_spark.progress")

_meter = metrics.get_meter("abs_spark")
_rows = _meter.create_counter("abs.rows", "{row}", "Rows of committed epochs")
_dead = _meter.create_counter("abs.dead_letters", "{row}", "Rows of committed epochs kept aside")
_epochs = _meter.create_counter("abs.epochs", "{epoch}", "Committed epochs")
_skips = _meter.create_counter("abs.skips", "{epoch}", "Replayed epochs found committed already")
_sweeps = _meter.create_counter("abs.sweeps", "{handle}", "Handles aborted: no decision names them")
_pre_commit_seconds = _meter.create_histogram(
    "abs.pre_commit.duration", "s", "A task's time from its first row to durable rows"
)
_commit_seconds = _meter.create_histogram(
    "abs.commit.duration", "s", "Decision, commit and finish of an epoch"
)


def observer(protocol: str) -> Observer:
    """An observer that logs and counts; metrics have the attributes ``job`` and ``protocol``."""

    def observe(event: Event) -> None:
        _show(event, {"job": event.job, "protocol": protocol})

    return observe


def _show(event: Event, of: dict[str, str]) -> None:
    match event:
        case Started(job, generation, minted):
            how = "a new register was created" if minted else "the register was taken over"
            _start.info("job %s: generation %d started; %s", job, generation, how)
        case PreCommitted(job, epoch, partition, rows, seconds, sinks):
            _pre_commit_seconds.record(seconds, of)
            _progress.info(
                "job %s: epoch %d partition %d%s: %d rows pre-committed in %.3f s",
                *(job, epoch, partition, f" of {sinks}" if sinks else "", rows, seconds),
            )
        case Committed(job, epoch, rows, handles, seconds, dead):
            _rows.add(rows, of)
            if dead:
                _dead.add(dead, of)
            _epochs.add(1, of)
            _commit_seconds.record(seconds, of)
            _epoch.info(
                "job %s: epoch %d: %d rows committed in %.3f s (%d handles)%s",
                *(job, epoch, rows, seconds, handles, f", {dead} of them dead" if dead else ""),
            )
        case Skipped(job, epoch, rows):
            _skips.add(1, of)
            _recovery.info(
                "job %s: epoch %d: committed before; its %d rows were read and not written again",
                *(job, epoch, rows),
            )
        case RolledForward(job, epoch, handles):
            _recovery.info(
                "job %s: epoch %d: was decided and is committed now (%d handles)",
                *(job, epoch, handles),
            )
        case Swept(job, handles):
            _sweeps.add(len(handles), of)
            _recovery.info("job %s: %d handles without a decision were aborted", job, len(handles))
        case SweepFailed(job, why):
            _recovery.warning(
                "job %s: handles without a decision could not be aborted: %s", job, why
            )
        case NotCertified(job, why):
            _start.warning(
                "job %s: its birth certificate cannot be written into the checkpoint; if the register "
                "is lost in this run, the loss may go undetected: %s",
                *(job, why),
            )
        case Ended(job, _):
            _recovery.info(
                "job %s: the run has ended; its open transactions were committed or aborted", job
            )
        case Abandoned(job, epoch):
            _recovery.info("job %s: epoch %d: abandoned; the next run writes it", job, epoch)
