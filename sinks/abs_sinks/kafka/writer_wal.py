"""Protocol wal: the task's records as a segment of the write-ahead log; no broker sees them yet."""

from __future__ import annotations

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable
from abs_core.wal import SegmentStore, SegmentWriter
from abs_sinks.kafka.fit import Fit
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import plan_columns, records_of
from abs_sinks.kafka.segments import columns_kept


class LogWriter:
    """Checks each batch against its topics, so that a bad row is named here, and keeps it.

    A seal whose reply is lost is not looked for: the attempt's name is its own (I6), so the segment is
    swept like any other that no decision names.

    Args:
        store: where segments go; the driver must see it too.
    """

    def __init__(
        self, options: KafkaOptions, schema: pa.Schema, task: Task, store: SegmentStore
    ) -> None:
        self._columns = plan_columns(schema, options.topic)
        self._kept = columns_kept(schema, options)
        self._fit = Fit(options)
        self._rows = 0
        self._schema = pa.schema([schema.field(name) for name in self._kept])
        self._segment = SegmentWriter(store, task.handle, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        self._fit.check(records_of(batch, self._columns, self._rows), self._rows)
        self._segment.write(self._selected(batch))
        first, self._rows = self._rows == 0, self._rows + batch.num_rows
        if first:
            reached(CrashPoint.AFTER_FIRST_BATCH)

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are kept; whether a batch says that a column can be null is not minded."""
        kept = batch.select(self._kept)
        if kept.schema.types != self._schema.types:
            return kept
        return pa.RecordBatch.from_arrays(kept.columns, schema=self._schema)

    def pre_commit(self) -> Committable | None:
        if self._rows:
            reached(CrashPoint.BEFORE_PRE_COMMIT)
        seal = self._segment.finish()
        if seal is None:
            return None
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return seal.committable()

    def abort(self) -> None:
        self._segment.abort()
