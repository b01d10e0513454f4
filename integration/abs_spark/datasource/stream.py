"""The streaming writer: a micro-batch is an epoch, Spark's driver is the coordinator.

``run_task`` is a task's work, for batch writes, too: it starts the run if need be, plans, and writes to
its one sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from abs_core.certificate import Origin
from abs_core.coordinator import Report
from abs_core.errors import ConfigError, ProtocolError
from abs_core.model import Share, job_key
from abs_core.protocol import Skip
from abs_core.rowdigest import is_row_digest
from abs_spark import run as runs
from abs_spark.checkpoint.spark_files import input_of, note_readable
from abs_spark.datasource.batch_size import tell_row_size
from abs_spark.names import Announced, RunName, run_of
from abs_spark.process.driver import not_hung_up
from abs_spark.process.executor import on_executor, reaching, stream_task
from abs_spark.process.gc_tuning import tune_gc
from abs_spark.process.logs import show_logs
from abs_spark.share import SinkShare, output_to, take_shares, task_of, to_one
from abs_spark.sink_spec import SinkSpec
from abs_spark.start import told_by_rows, warn


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


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What a task does for one epoch.

    Args:
        run: whose epoch it is.
        announced: what the planner has just shown.
        origin: read from the checkpoint before this epoch's tasks began.
        digests: whether a replay can be recognised by its rows only.
    """

    run: RunName
    epoch: int
    partition: int
    rows: Iterator[pa.RecordBatch]
    announced: Announced
    origin: Origin
    digests: bool


def run_task(target: SinkSpec, work: TaskWork) -> EpochMessage:
    """Do a task's work for one epoch and return its message to the commit process.

    Raises:
        AbsError: nothing of the task's rows becomes visible.
    """
    with reaching():  # to build a run is to ask the target who it is
        run = runs.attach(target, work.run)
    run.reach()
    epoch, digests = work.epoch, work.digests
    state, plan = run.begin(epoch, work.origin, checked=work.announced.checked)
    task = task_of(state, epoch, work.partition)
    out = None
    if isinstance(plan, Skip):
        recorded = state.record(epoch)
        by_rows = recorded is not None and is_row_digest(recorded.fingerprint)
        digests = by_rows and target.options.common.replay == "digest"
    else:
        make = partial(run.sink.writer, task)
        out = output_to({"": target}, make, to_one, task, work.partition)
    sink = SinkShare(target.schema, out, digests=digests)
    [share] = take_shares([sink], work.rows, task, run.sink.register)
    started = run.has_started_in(epoch)
    warnings = run.warnings if started else ()
    warn(warnings)
    tune_gc()
    return EpochMessage(work.run, epoch, share, started, work.announced, warnings)


@dataclass(frozen=True, repr=False)
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches exactly once.

    Spark makes one in the planner for every epoch and pickles it to the tasks, and another in the
    commit process; neither outlives its epoch.

    Args:
        query_start: names this start of the query in the commit process.
        driver: see ``driver.driver_id``.
        announced: what the planner has just shown.
        origin: read by the planner from the checkpoint.
        location: of the checkpoint.
        readable: whether the planner could read the checkpoint; if not, tasks may have to make digests
            of their rows, to recognise a replay.
    """

    target: SinkSpec
    query_start: str
    driver: str | None
    announced: Announced
    origin: Origin
    location: str | None
    readable: bool = True

    def write(self, iterator: Iterator[pa.RecordBatch]) -> EpochMessage:
        """In a task: start the run if need be, plan, write and pre-commit.

        Raises:
            AbsError: nothing of this task becomes visible.
        """
        show_logs()
        with on_executor():
            task = stream_task()
            job = job_key(self.target.options.common.job or task.query)
            name = RunName(job, task.query, run_of(task.run, self.driver), self.location)
            work = TaskWork(
                run=name,
                epoch=task.epoch,
                partition=task.partition,
                rows=iterator,
                announced=self.announced,
                origin=self.origin,
                digests=not self.readable and self.target.options.common.replay == "digest",
            )
            message = run_task(self.target, work)
            return replace(message, readable=self.readable)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """In the commit process: all tasks have pre-committed; decide and commit.

        If it raises, the epoch may be decided: the next start finishes it, or finds it undecided and
        writes it again.

        Raises:
            AbsError: the query stops with its text.
        """
        show_logs()
        reported = reported_by(messages, batchId)
        name = reported[0].name
        runs.latest.put(self.query_start, name)
        checkpoint = self.target.options.common.checkpoint
        if checkpoint and any(message.readable for message in reported):
            note_readable(checkpoint)
        patience = replace(self.target.options.patience, job=self.target.options.common.job)
        digest, asked = input_of(checkpoint, batchId, patience)
        if any(message.started for message in reported):
            show_once(self.target, reported)
            if digest is None:
                warn([told_by_rows(name.job, self.target.options.common.replay)])
        shares = [message.share for message in reported]
        report = Report(batchId, shares, digest, alone=True, asked=asked)
        with not_hung_up():
            runs.attach(self.target, name).coordinator.commit(report)
        tell_row_size(name.lineage, name.run.partition("@")[0], shares)
        tune_gc()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """In the commit process: a task or ``commit`` failed, or the query was stopped.

        Spark ends the query after it, so this ends the run: it raises the generation, which fences
        running tasks and a decision in flight, commits decisions and aborts the rest, so that no open
        transaction blocks readers. Never raises, so that the first error is shown.
        """
        show_logs()
        name = next((m.name for m in messages if isinstance(m, EpochMessage)), None)
        name = name or runs.latest.get(self.query_start)
        with not_hung_up():
            if name is None:  # no task of the run has ever reported to this process
                runs.end_unreported(self.target, self.driver)
            else:
                runs.end(self.target, name, tasks_may_run=None in messages)


def reported_by(messages: Sequence[WriterCommitMessage | None], epoch: int) -> list[EpochMessage]:
    """The tasks' messages, after a check that they are of one run and of this epoch.

    Raises:
        ConfigError: no task has reported.
        ProtocolError: they do not belong together.
    """
    reported = [message for message in messages if isinstance(message, EpochMessage)]
    if not reported:
        # What Spark 4.3 does in continuous processing: it never calls write(), and logs this.
        raise ConfigError(
            "Spark ended an epoch without any task's report: nothing of it was written.",
            remedy="stop the query and use a micro-batch trigger (the default one, processingTime or "
            "availableNow): a Python sink cannot do continuous processing.",
            epoch=epoch,
        )
    of = {(message.name, message.epoch) for message in reported}
    if len(reported) != len(messages) or len(of) != 1 or reported[0].epoch != epoch:
        raise ProtocolError(
            f"Spark committed an epoch with {len(reported)} reports of {len(messages)} tasks, for "
            f"{len(of)} runs or epochs.",
            epoch=epoch,
            remedy="restart the query: the epoch is written again. If it happens again, please "
            "report it with the version of Spark.",
        )
    return reported


def show_once(target: SinkSpec, reported: Sequence[EpochMessage]) -> None:
    """On the driver, with a run's first commit: what the planner has not shown."""
    name = reported[0].name
    if not reported[0].announced.shown:
        runs.attach(target, name).start.show()
    warn([warning for message in reported for warning in message.warnings])
