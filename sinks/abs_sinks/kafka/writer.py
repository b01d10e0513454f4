"""What the writers of all three protocols do alike: check each batch, count, and keep its records."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable
from abs_sinks.kafka.fit import Fit
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records, plan_columns, records_of


class RecordWriter(ABC):
    """A ``Writer``: a bad row is named before anything of its batch is kept.

    Args:
        more_bytes: that each record gets besides its own.
    """

    def __init__(
        self, options: KafkaOptions, schema: pa.Schema, task: Task, *, more_bytes: int = 0
    ) -> None:
        self._options = options
        self._task = task
        self._columns = plan_columns(schema, options.topic)
        self._fit = Fit(options, more_bytes, job=task.job)
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        records = records_of(batch, self._columns, self._rows)
        self._fit.check(records, self._rows)
        self._keep(batch, records)
        first, self._rows = self._rows == 0, self._rows + batch.num_rows
        if first:
            reached(CrashPoint.AFTER_FIRST_BATCH)

    def pre_commit(self) -> Committable | None:
        if not self._rows:
            return None
        self._complete()
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        found = self._prepared()
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return found

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def _keep(self, batch: pa.RecordBatch, records: Records) -> None:
        """Take what was checked; both are the same rows."""

    @abstractmethod
    def _complete(self) -> None:
        """Return when all that was kept is where it belongs."""

    @abstractmethod
    def _prepared(self) -> Committable:
        """Pre-commit it."""
