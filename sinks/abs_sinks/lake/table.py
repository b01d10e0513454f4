"""The interface of a table's log, which one adapter per library implements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from abs_clients.tablelog import TableHistory
from abs_sinks.s3.partitions import Folders

NONE = pa.schema([])
"""A schema without columns."""

Problem = tuple[str, str]
"""What cannot be kept, and what to do instead: two sentences."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file that a table commit adds.

    Args:
        path: below the table's folder, as it is on disk or in the bucket.
        values: of the partition columns, as text; None: NULL.
        stats: what the table's own writers tell of a file, as its log holds it; see ``Entries``.
    """

    path: str
    size: int
    rows: int
    values: Mapping[str, str | None]
    stats: str


@dataclass(frozen=True, slots=True)
class Mark:
    """By what a table commit is found again.

    Args:
        application: of one job's sink.
        version: of the epoch: it only grows within an application.
        told: job and epoch, for people.
    """

    application: str
    version: int
    told: Mapping[str, str]

    @property
    def properties(self) -> dict[str, str]:
        """What the commit says of itself, by which ``Snapshot.place_of`` finds it."""
        # Job and epoch alone are those of each of a job's sinks that write to one table.
        return {**self.told, self.application: str(self.version)}


class Partitions(Folders, Protocol):
    """Makes the partition values of rows, which their files do not have.

    Attributes:
        fields: a column for each of them.
    """

    @property
    def fields(self) -> Sequence[pa.Field]: ...

    def values(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        """The values of ``fields`` for each row."""
        ...

    def outside(self, rows: pa.RecordBatch) -> Iterable[tuple[str, pa.Array]]:
        """A column, and which rows have a value there that no partition can have."""
        ...


class Entries(Protocol):
    """Makes what a table's log tells of the files that a task has written."""

    @property
    def partitions(self) -> Partitions | None:
        """None: they are columns of the rows, which are left out of the files."""
        ...

    def entry(self, footer: Any, values: pa.RecordBatch) -> str:
        """``AddedFile.stats`` of a file.

        Args:
            footer: its Parquet metadata.
            values: of its partition: one row.
        """
        ...


class Snapshot(Protocol):
    """The table as of one moment; commits are from this moment on, and fail if the table moved."""

    log_is_read: bool
    """Whether ``has`` needs no request."""

    @property
    def id(self) -> str:
        """The table's own id: another one for a table dropped and created again."""
        ...

    @property
    def location(self) -> str:
        """Of its data files; empty for a table whose address is its location."""
        ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def partitions(self) -> tuple[str, ...]:
        """What the table is partitioned by: columns, and transforms of columns."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that partitions are made of."""
        ...

    def problems(self) -> Sequence[Problem]:
        """What of this table cannot be kept by a writer of plain files."""
        ...

    def notes(self) -> Sequence[Problem]:
        """What is not done as the table asks, and does no harm."""
        ...

    def written(self, columns: pa.Schema) -> pa.Schema:
        """These columns as data files have them."""
        ...

    def misfits(self, written: pa.Schema) -> Sequence[str] | None:
        """Why files of this schema do not fit the table any more; None: it finds columns by name."""
        ...

    def forgotten(self, files: Sequence[AddedFile]) -> Sequence[str]:
        """The partition fields of these files that the table has no specification of any more."""
        ...

    def entries(self) -> Entries:
        """For files that are written for the table as it is now."""
        ...

    def version_of(self, application: str) -> int | None:
        """The version of the application's last commit; None if there is none."""
        ...

    def place_of(self, mark: Mark) -> str | None:
        """Where in the log the mark's commit is; None if that is no longer told.

        Where ``log_is_read`` is False it is a number, which each change of the table raises by one.
        """
        ...

    def has(self, place: str) -> bool | None:
        """Whether the commit at that place is in this snapshot's history; None: not told any more.

        Not so after a restore or a rollback below it, which the mark outlives.
        """
        ...

    def is_empty(self) -> bool: ...

    def add(self, files: Sequence[AddedFile], mark: Mark, columns: pa.Schema = NONE) -> bool:
        """One commit that adds the files and the mark, from this very snapshot; tried once.

        Args:
            columns: that the table lacks, and gets by the same commit.

        Returns:
            False: it was not done, or its outcome is unknown: load again and look.

        Raises:
            UnavailableError: the same, where the store did not answer.
            RefusedError: it will never be done.
        """
        ...


class LakeTable(Protocol):
    """A table's address."""

    def load(self) -> Snapshot | None:
        """The newest snapshot; None: there is no table."""
        ...

    def check_may_create(self, schema: pa.Schema) -> None:
        """Raise as ``create``, without making anything.

        Raises:
            RefusedError: what a table must lie in is missing, and is not made by ``create``.
            SchemaError: it has no type for a column.
        """

    def create(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Make the table; nothing if somebody else just did.

        Raises:
            SchemaError: it has no type for a column.
        """
        ...

    def read(self, place: str | None = None) -> pa.RecordBatchReader:
        """The rows that a reader sees now, or saw at a place in the log (``Snapshot.place_of``).

        Raises:
            RefusedError: that state is gone.
        """
        ...

    def history(self) -> TableHistory:
        """The commits that its log still tells, for ``abs audit duplicates``."""
        ...

    def widen(self, columns: pa.Schema) -> None:
        """Add columns before files with them are written; a lost race does nothing.

        For a table that finds columns by ids.
        """
        ...
