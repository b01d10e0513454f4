"""A task's writer: data files as of the S3 sink, and what the table's log holds of each."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from abs_clients.arrow import cast_plain
from abs_core.contracts import Task
from abs_core.errors import RowError
from abs_core.model import Committable
from abs_sinks.lake.committer import ADDS, COLUMNS, FILES, TABLE
from abs_sinks.lake.fit import Fit
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
        keep: see ``Partitioning``.
    """

    offers = ""  # a table of the lake has no dead letters yet

    def __init__(
        self,
        options: S3Options,
        fitted: Fit,
        task: Task,
        store: Store,
        stats_of: Callable[[Any], str],
        *,
        keep: bool = False,
    ) -> None:
        super().__init__(replace(options, partitionby=fitted.partitions), fitted.schema, task)
        self._fit = fitted
        self._store = store
        self._stats_of = stats_of
        self._keeps = keep
        self._told: dict[str, tuple[int, str]] = {}

    def _keep(self, batch: pa.RecordBatch) -> None:
        if batch.num_columns > len(self._schema):
            batch = batch.select(self._schema.names)  # schemachange=ignore
        for name in self._fit.required:
            if batch.column(name).null_count:
                raise RowError(
                    f"The column {name} has a NULL, which the table does not take.",
                    handle=self._handle,
                    remedy="filter such rows in Spark, or let the column be NULL in the table.",
                )
        if batch.schema != self._fit.schema:
            columns = map(cast_plain, batch.columns, self._fit.schema.types)
            batch = pa.RecordBatch.from_arrays(list(columns), schema=self._fit.schema)
        super()._keep(batch)

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
