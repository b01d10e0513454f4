"""The base of sinks for tables of the lake."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import cast_plain, plain_type, type_name
from abs_core.contracts import Inventory, Sink, Task
from abs_core.errors import AbsError, ConfigError, IdentityError
from abs_core.model import Committable, Finding, Guarantee
from abs_sinks.deadletters.writer import dead_letters_of
from abs_sinks.lake.committer import (
    ADDS,
    COLUMNS,
    FILES,
    LOCATION,
    REQUIRED,
    TABLE,
    TRIES,
    LakeCommitter,
)
from abs_sinks.lake.fit import Fit, alike, fit, plain_schema, unfit, unwritable
from abs_sinks.lake.folder import TableFiles
from abs_sinks.lake.options import LakeOptions
from abs_sinks.lake.table import Entries, Snapshot
from abs_sinks.lake.values import check_values, to_written
from abs_sinks.refusals import BadRows, Code, Reason, converting, find_bad_rows, refuse
from abs_sinks.s3.options import S3Options, check_partitioning
from abs_sinks.s3.partitions import Partitioning
from abs_sinks.s3.store import Store
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.twophase import committable
from abs_sinks.s3.uploads import Upload
from abs_sinks.s3.writer import StreamingWriter

_OPEN_UPLOADS = (
    "A lifecycle rule that aborts unfinished uploads must wait for longer than the job may be down."
)

_ORPHANS = (
    "A clean-up of files that the log does not name must keep those of the last days: after a crash an "
    "epoch's completed files wait for the next start, which adds them. One that is gone is an error."
)

_GUARANTEE = Guarantee(
    protocol="2pc",
    write="append",
    visibility="whole epoch: its rows appear with one version of the table",
    reader="no setting needed: every reader of the table sees committed rows only",
    limits=(_OPEN_UPLOADS, _ORPHANS),
)


def guarantee(options: LakeOptions) -> Guarantee:
    """The guarantee that follows from the options."""
    if options.deadletter is None:
        return _GUARANTEE
    return replace(_GUARANTEE, notes=(dead_letters_of("table", options),))


class LakeSink(Sink):
    """Writes batches of one schema to one table, exactly once.

    It connects at its first use. With ``createtable`` the first use makes a missing table.
    """

    scheme: ClassVar[str]
    widens: ClassVar[bool] = False
    """Whether columns are added to the table before files with them are written."""

    widened: ClassVar[Mapping[pa.DataType, pa.DataType]] = MappingProxyType({})

    def __init__(self, options: LakeOptions, schema: pa.Schema) -> None:
        self._options = options
        self._table = options.address
        self._schema = plain_schema(schema, self.widened)
        self._found: tuple[Fit, TableFiles, Entries] | None = None
        self._if_missing: Callable[[], None] = lambda: None

    @property
    def target_id(self) -> str:
        """The table's own id, not its path: a table that is created again is another target."""
        return f"{self.scheme}:{self._ready[0].table}"

    def if_missing(self, check: Callable[[], None]) -> None:
        self._if_missing = check

    def writer(self, task: Task) -> LakeWriter:
        fitted, place, entries = self._ready
        return LakeWriter(place.options, fitted, task, place.store(), entries, self.target_id)

    def raw_writer(self, task: Task) -> LakeWriter:
        """See ``deadletters.writer.GivingSink``."""
        return self.writer(task)

    def committer(self) -> LakeCommitter:
        place = self._ready[1]
        return LakeCommitter(self._table, place.options.path.folder, place.files())

    def register(self) -> Inventory:
        place = None if self._found is not None else self._options.place(self._table.load())
        return (place or self._ready[1]).register()

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        """See ``Sink``; a missing table is not made."""
        findings: list[Finding] = []
        try:
            snapshot = self._table.load()
            if snapshot is None:
                self._check_missing()
                if not self._options.createtable:
                    raise absent()
                self._check_new()
            if snapshot is not None and not self._schema.names:
                findings += [Finding.error(text, remedy) for text, remedy in snapshot.problems()]
            elif snapshot is not None:
                findings += self._differing(self._fit(snapshot))
            notes = () if snapshot is None else snapshot.notes()
            findings += [Finding.warning(text, remedy) for text, remedy in notes]
            place = self._options.place(snapshot)
            findings += () if place is None else place.preflight()
        except IdentityError:
            raise
        except AbsError as error:
            findings.append(Finding.of(error))
        return findings

    def guarantee(self) -> Guarantee:
        return guarantee(self._options)

    def is_empty(self) -> bool:
        snapshot = self._table.load()
        return snapshot is None or snapshot.is_empty()

    def reach(self) -> None:
        self._table.load()

    @property
    def _ready(self) -> tuple[Fit, TableFiles, Entries]:
        """The table, which is made or widened if it may be."""
        if self._found is None:
            snapshot = self._table.load()
            if snapshot is None:
                self._check_missing()
                if self._options.createtable:
                    self._check_new()
                    self._table.create(self._schema, self._options.partitionby)
                    snapshot = self._table.load()
            place = self._options.place(snapshot)
            if snapshot is None or place is None:
                raise absent()
            fitted = self._fit(snapshot)
            for _ in range(TRIES):
                if not (self.widens and fitted.added):
                    break
                self._table.widen(pa.schema(fitted.added))
                snapshot = self._table.load()
                if snapshot is None:
                    raise absent()
                fitted = self._fit(snapshot)
            self._found = fitted, place, snapshot.entries()
        return self._found

    def _check_missing(self) -> None:
        # It looks into the register, which may lie in the table's own folder: once is enough.
        check, self._if_missing = self._if_missing, lambda: None
        check()

    def _check_new(self) -> None:
        """Refuse columns of which no table is made, and a place where none is."""
        if misfits := [*unwritable(self._schema), *alike(self._schema)]:
            raise unfit(misfits)
        self._table.check_may_create(self._schema)
        if not self._schema.names:  # the input is not known
            return
        check_partitioning(self._options.partitionby, self._schema.names)
        Partitioning(self._schema, self._options.partitionby)

    def _differing(self, fitted: Fit) -> Iterator[Finding]:
        """What schemachange does with columns that the table lacks."""
        ignored = [name for name in self._schema.names if name not in fitted.schema.names]
        if fitted.added:
            added = ", ".join(field.name for field in fitted.added)
            yield Finding.note(f"The table lacks {added}: the next epoch adds them.")
        if ignored:
            yield Finding.warning(
                f"The table lacks {', '.join(ignored)}, which are not written (schemachange=ignore).",
                "add them to the table, or set schemachange=add, if they should be kept.",
            )

    def _fit(self, snapshot: Snapshot) -> Fit:
        options = self._options
        return fit(snapshot, self._schema, options.partitionby, options.schemachange)


def absent() -> ConfigError:
    """The error for a table that is not there."""
    return ConfigError(
        "There is no such table.", remedy="create it, or set createtable=true; or check its name."
    )


class LakeWriter(StreamingWriter):
    """Leaves data files prepared, with every byte acknowledged.

    Args:
        entries: for the table as it was when the input was fitted to it.
        name: of the table, for dead letters.
    """

    offers = "sink:NAME (in an abs_spark.epoch)"

    def __init__(
        self,
        options: S3Options,
        fitted: Fit,
        task: Task,
        store: Store,
        entries: Entries,
        name: str,
    ) -> None:
        hidden = () if entries.partitions is None else entries.partitions.fields
        names = fitted.partitions if entries.partitions is None else [f.name for f in hidden]
        schema = pa.schema([*fitted.schema, *hidden])
        super().__init__(replace(options, partitionby=tuple(names)), schema, task)
        self._letters_sink = name
        self._fit = fitted
        self._store = store
        self._entries = entries
        self._told: dict[str, tuple[int, str]] = {}

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        return find_bad_rows(batch, self._checked)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as they are written. Raises as ``CheckingWriter``."""
        for name in self._fit.required:
            if batch.column(name).null_count:
                why = "are NULL, which the table does not take"
                remedy = "filter such rows in Spark, or let the column be NULL in the table"
                refuse(Reason(Code.NULL, name, why, remedy), pc.is_null(batch.column(name)))
        columns = []
        for field in self._fit.schema:
            if field.name not in batch.schema.names:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            plain = plain_type(batch.schema.field(field.name).type)
            with converting(field.name, type_name(field.type)):
                column = cast_plain(batch.column(field.name), plain)
                check_values(column, field.name)
                columns.append(to_written(column, field.type, field.name))
        rows = pa.RecordBatch.from_arrays(columns, schema=self._fit.schema)
        made = pa.RecordBatch.from_arrays(
            [*rows.columns, *self._partition(rows)], schema=self._schema
        )
        super()._checked(made)
        return made

    def _partition(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        if (partitions := self._entries.partitions) is None:
            return ()
        for column, beyond in partitions.outside(rows):
            why = "have no partition: what they are truncated to is outside of the column's type"
            refuse(Reason(Code.PARTITION, column, why, "filter such rows in Spark"), beyond)
        return partitions.values(rows)

    def _keep_checked(self, batch: pa.RecordBatch, checked: pa.RecordBatch) -> None:
        super()._keep_checked(checked, None)

    def _begun(self) -> TaskFiles:
        return TaskFiles(
            self._options,
            self._schema,
            self._handle,
            self._patience,
            store=self._store,
            ended=self._note,
            folders=self._entries.partitions,
        )

    def _note(self, upload: Upload, footer: Any, values: pa.RecordBatch) -> None:
        self._told[upload.key] = (footer.num_rows, self._entries.entry(footer, values))

    def _sealed(self) -> Committable:
        made = committable(self._handle, self._rows, self._uploads)
        descriptions = [list(self._told[upload.key]) for upload in self._uploads]
        files = json.dumps(descriptions, separators=(",", ":"))
        columns = b64encode(self._fit.schema.serialize()).decode()
        extra = {**dict(made.extra), FILES: files, TABLE: self._fit.table, COLUMNS: columns}
        extra[REQUIRED] = json.dumps(self._fit.required)
        if self._fit.location:
            extra[LOCATION] = self._fit.location
        if self._fit.added:
            extra[ADDS] = "true"
        return replace(made, extra=tuple(sorted(extra.items())))
