"""A task's writer: data files as of the S3 sink, and what the table's log holds of each."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import cast_plain
from abs_core.contracts import Task
from abs_core.model import Committable
from abs_sinks.lake.committer import ADDS, COLUMNS, FILES, TABLE
from abs_sinks.lake.fit import Fit
from abs_sinks.refusals import BadRows, Code, Reason, find_bad_rows, refuse
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.store import Store
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.twophase import committable
from abs_sinks.s3.uploads import Upload
from abs_sinks.s3.writer import StreamingWriter


class LakeWriter(StreamingWriter):
    """Leaves data files prepared, with every byte acknowledged.

    Args:
        stats_of: see ``Table``.
        name: of the table, for dead letters.
        keep: see ``Partitioning``.
    """

    offers = "sink:NAME (in an abs_spark.epoch)"

    def __init__(
        self,
        options: S3Options,
        fitted: Fit,
        task: Task,
        store: Store,
        stats_of: Callable[[Any], str],
        *,
        name: str,
        keep: bool = False,
    ) -> None:
        super().__init__(replace(options, partitionby=fitted.partitions), fitted.schema, task)
        self._letters_sink = name
        self._fit = fitted
        self._store = store
        self._stats_of = stats_of
        self._keeps = keep
        self._told: dict[str, tuple[int, str]] = {}

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        return find_bad_rows(batch, self._judged)

    def _judged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as they are written. Raises as ``JudgingWriter``."""
        if batch.num_columns > len(self._schema):
            batch = batch.select(self._schema.names)  # schemachange=ignore
        for name in self._fit.required:
            if batch.column(name).null_count:
                why = "are NULL, which the table does not take"
                remedy = "filter such rows in Spark, or let the column be NULL in the table"
                refuse(Reason(Code.NULL, name, why, remedy), pc.is_null(batch.column(name)))
        if batch.schema != self._fit.schema:
            columns = map(cast_plain, batch.columns, self._fit.schema.types)
            batch = pa.RecordBatch.from_arrays(list(columns), schema=self._fit.schema)
        super()._judged(batch)
        return batch

    def _keep_judged(self, batch: pa.RecordBatch, judged: pa.RecordBatch) -> None:
        super()._keep_judged(judged, None)

    def _begun(self) -> TaskFiles:
        return TaskFiles(
            self._options,
            self._schema,
            self._handle,
            self._patience,
            store=self._store,
            ended=self._note,
            keep=self._keeps,
        )

    def _note(self, upload: Upload, footer: Any) -> None:
        self._told[upload.key] = (footer.num_rows, self._stats_of(footer))

    def _sealed(self) -> Committable:
        made = committable(self._handle, self._rows, self._uploads)
        told = [list(self._told[upload.key]) for upload in self._uploads]
        files = json.dumps(told, separators=(",", ":"))
        columns = b64encode(self._schema.serialize()).decode()
        extra = {**dict(made.extra), FILES: files, TABLE: self._fit.table, COLUMNS: columns}
        if self._fit.added:
            extra[ADDS] = "true"
        return replace(made, extra=tuple(sorted(extra.items())))
