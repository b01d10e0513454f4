"""The batch writer: a whole ``df.write`` is one epoch, named by the option ``epoch``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from abs_core.coordinator import Report
from abs_spark import run as runs
from abs_spark.context import partition
from abs_spark.logs import show_logs
from abs_spark.message import EpochMessage, RunName
from abs_spark.share import take_share
from abs_spark.stream import give_up, reported_by
from abs_spark.target import Target

EPOCH = 0
"""The number of a batch write's only epoch; its token is part of the job key."""


class BatchWriter(DataSourceArrowWriter):
    """Writes one batch exactly once per job and token.

    The same batch written again changes nothing: its tasks drain their rows, whose count must be
    the one that was committed. Order and partitioning of the rows do not matter.

    Args:
        name: the run; ``name.lineage`` follows from job and token, so every repetition has the same.
    """

    def __init__(self, target: Target, name: RunName, announced: bool) -> None:
        self._target = target
        self._name = name
        self._announced = announced

    def write(self, iterator: Iterator[pa.RecordBatch]) -> EpochMessage:
        """In a task: as ``StreamWriter.write``."""
        show_logs()
        run = runs.attach(self._target, self._name)
        share = take_share(run, EPOCH, partition(), iterator, self._target.schema)
        return EpochMessage(self._name, EPOCH, share, self._announced, run.warnings)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the commit process: as ``StreamWriter.commit``; there is no fingerprint of the input.

        Raises:
            AbsError: ``save()`` fails with its text; to write the batch again is safe.
        """
        show_logs()
        shares = [message.share for message in reported_by(messages, EPOCH)]
        runs.attach(self._target, self._name).coordinator.commit(Report(EPOCH, shares, None))
        runs.drop(self._target, self._name)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the commit process: a task or ``commit`` failed. Never raises."""
        show_logs()
        give_up(self._target, self._name, EPOCH)
