"""A task's writer: data files as of the S3 sink, and what the table's log holds of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from abs_clients.arrow import cast_plain, plain_type
from abs_core.contracts import Task
from abs_core.errors import OptionError, RowError, SchemaError
from abs_core.model import Committable
from abs_sinks.lake.committer import FILES, TABLE
from abs_sinks.lake.table import Snapshot
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.store import Store
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.twophase import committable
from abs_sinks.s3.uploads import Upload
from abs_sinks.s3.writer import StreamingWriter


@dataclass(frozen=True, slots=True)
class Fit:
    """How an input fits a table.

    Args:
        table: its id.
        schema: of the batches as they are written: the input's columns, with plain types.
        required: columns that must not be NULL.
    """

    table: str
    partitions: tuple[str, ...]
    schema: pa.Schema
    required: tuple[str, ...] = ()


def plain_schema(
    schema: pa.Schema, widened: Mapping[pa.DataType, pa.DataType] = MappingProxyType({})
) -> pa.Schema:
    """The input's columns as they are written, each nullable.

    Args:
        widened: types that the table does not have, each with the one that holds its values.
    """
    kinds = ((field.name, plain_type(field.type)) for field in schema)
    return pa.schema([pa.field(name, widened.get(kind, kind)) for name, kind in kinds])


def fit(snapshot: Snapshot, given: pa.Schema, partitionby: Sequence[str]) -> Fit:
    """Check the input, as ``plain_schema`` made it, against the table.

    Raises:
        SchemaError: columns or types differ, or the table asks what is not kept here.
        OptionError: ``partitionby`` is not the table's.
    """
    for what, remedy in snapshot.problems():
        raise SchemaError(what, remedy=remedy)
    partitions, wanted = snapshot.partitions, {field.name: field for field in snapshot.schema}
    if partitionby and tuple(partitionby) != partitions:
        raise OptionError(
            f"The table is partitioned by {', '.join(partitions) or 'nothing'}, not by "
            f"{', '.join(partitionby)}.",
            remedy="leave partitionby out: it is for a table that is created.",
        )
    misfits = [f"{name} is not in the table" for name in given.names if name not in wanted]
    for field in given:
        other = wanted.get(field.name)
        if other is not None and plain_type(other.type) != field.type:
            misfits.append(f"{field.name} is {field.type}, in the table {plain_type(other.type)}")
    required = tuple(name for name, field in wanted.items() if not field.nullable)
    missing = [name for name in dict.fromkeys((*required, *partitions)) if name not in given.names]
    misfits += [f"{name} is missing, which the table demands" for name in missing]
    nested = [field.name for field in wanted.values() if _demands(field.type)]
    misfits += [f"{name} has parts that must not be NULL in the table" for name in nested]
    misfits += [
        f"{n} is a moment with a zone, which engines read differently as a partition"
        for n in partitions
        if n in given.names and getattr(given.field(n).type, "tz", None)
    ]
    if misfits:
        raise SchemaError(
            f"The input does not fit the table: {'; '.join(misfits)}.",
            remedy="cast, rename or drop the columns in Spark, or change the table first.",
        )
    return Fit(snapshot.id, partitions, given, required)


def _demands(kind: pa.DataType) -> bool:
    """Whether a nested type has parts that must not be NULL (keys of maps never are)."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _demands(kind.item_type)
    parts = [kind.field(n) for n in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return any(not part.nullable or _demands(part.type) for part in parts)


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
        extra = {**dict(made.extra), FILES: files, TABLE: self._fit.table}
        return replace(made, extra=tuple(sorted(extra.items())))
