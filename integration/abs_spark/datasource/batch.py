"""The batch writer: a ``df.write`` is one epoch, named by the option ``epoch``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from abs_core.certificate import Origin
from abs_core.coordinator import Report
from abs_core.coordinator.certifier import EPOCH
from abs_core.errors import ReplayMismatchError
from abs_spark import run as runs
from abs_spark.datasource.stream import EpochMessage, TaskWork, reported_by, run_task, show_once
from abs_spark.names import Announced, RunName
from abs_spark.process.executor import on_executor, partition
from abs_spark.process.logs import show_logs
from abs_spark.sink_spec import SinkSpec


@dataclass(frozen=True, repr=False)
class BatchWriter(DataSourceArrowWriter):
    """Writes one batch exactly once per job and token.

    A repetition of the batch changes nothing: its tasks drain their rows, which the option ``replay``
    compares with the committed ones. Their order and partitioning do not matter.

    Args:
        name: the run; ``name.lineage`` is derived from job and token.
        origin: the token's entry in the job's parent record.
    """

    target: SinkSpec
    name: RunName
    announced: Announced
    origin: Origin

    def write(self, iterator: Iterator[pa.RecordBatch]) -> EpochMessage:
        """In a task: as ``StreamWriter.write``."""
        show_logs()
        work = TaskWork(
            run=self.name,
            epoch=EPOCH,
            partition=partition(),
            rows=iterator,
            announced=self.announced,
            origin=self.origin,
            digests=self._replay == "digest",
        )
        with on_executor():
            return run_task(self.target, work)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the commit process: as ``StreamWriter.commit``; there is no fingerprint of the input.

        Records the token in the job's parent record before it decides the batch.

        Raises:
            AbsError: ``save()`` fails with its text; it is safe to write the batch again.
        """
        show_logs()
        reported = reported_by(messages, EPOCH)
        if any(message.started for message in reported):
            show_once(self.target, reported)
        shares, trusted = [message.share for message in reported], self._replay == "token"
        report = Report(EPOCH, shares, None, trusted=trusted, alone=True)
        try:
            runs.attach(self.target, self.name).coordinator.commit(report)
        except ReplayMismatchError as error:
            trusting = ", or set replay=token, which trusts the name"
            raise runs.another_batch(self.name.job, error.why, trusting) from error

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the commit process: a task or ``commit`` failed. Never raises."""
        show_logs()
        runs.end(self.target, self.name, tasks_may_run=None in messages)

    @property
    def _replay(self) -> str:
        return self.target.options.common.replay
