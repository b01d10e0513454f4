"""The base of sinks for tables of the lake."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from abs_clients.s3.location import OURS
from abs_core.contracts import Inventory, Sink, Task
from abs_core.errors import AbsError, ConfigError
from abs_core.model import Finding, Guarantee
from abs_core.registers.file import FileRegister
from abs_sinks.lake.committer import LakeCommitter
from abs_sinks.lake.folder import FolderStore
from abs_sinks.lake.options import LakeOptions
from abs_sinks.lake.table import Snapshot, Table
from abs_sinks.lake.writer import Fit, LakeWriter, fit, plain_schema
from abs_sinks.s3.preflight import preflight
from abs_sinks.s3.register import S3Register
from abs_sinks.s3.store import BucketStore, Store
from abs_sinks.s3.twophase import TwoPhaseCommitter

_OPEN_UPLOADS = (
    "A lifecycle rule that aborts unfinished uploads must wait for longer than the job may be down."
)

_ORPHANS = (
    "A clean-up of files that the log does not name must keep those of the last days: after a crash an "
    "epoch's completed files wait for the next start, which adds them. One that is gone is an error."
)

GUARANTEE = Guarantee(
    protocol="2pc",
    write="append",
    visibility="whole epoch: its rows appear with one version of the table",
    reader="no setting needed: every reader of the table sees committed rows only",
    limits=(_OPEN_UPLOADS, _ORPHANS),
)


class Place:
    """Where a table's data files and its own register are: a bucket's folder, or a local one."""

    def __init__(self, options: LakeOptions, folder: str) -> None:
        self.options = options.files(folder)
        self._local = None if folder.startswith("s3") else Path(folder)

    def store(self) -> Store:
        return BucketStore(self.options) if self._local is None else FolderStore(self._local)

    def register(self) -> Inventory:
        if self._local is None:
            return S3Register(self.options)
        return FileRegister(self._local / OURS / "register")

    def files(self, *, sized: bool = False) -> TwoPhaseCommitter:
        return TwoPhaseCommitter(self.options, sized=sized, store=self.store())

    def preflight(self) -> Sequence[Finding]:
        return preflight(self.options, None) if self._local is None else ()


class LakeSink(Sink):
    """Writes batches of one schema to one table, exactly once.

    It connects at its first use. With ``createtable`` the first use makes a missing table.
    """

    scheme: ClassVar[str]

    def __init__(self, options: LakeOptions, schema: pa.Schema) -> None:
        self._given = options
        self._schema = schema
        self._fit: Fit | None = None

    @abstractmethod
    def _table(self) -> Table: ...

    @abstractmethod
    def _place(self) -> Place: ...

    @property
    def target(self) -> str:
        """The table's own id, not its path: a table that is created again is another target."""
        return f"{self.scheme}:{self._fitted().table}"

    def writer(self, task: Task) -> LakeWriter:
        place = self._place()
        stats = self._table().stats_of
        return LakeWriter(place.options, self._fitted(), task, place.store(), stats)

    def committer(self) -> LakeCommitter:
        place = self._place()
        return LakeCommitter(self._table(), place.options.path.folder, place.files(), self._check)

    def register(self) -> Inventory:
        return self._place().register()

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return examined(self._given, self._table(), self._place(), self._schema)

    def guarantee(self) -> Guarantee:
        return GUARANTEE

    def is_empty(self) -> bool:
        snapshot = self._table().load()
        return snapshot is None or snapshot.is_empty()

    def reach(self) -> None:
        self._table().load()

    def _check(self, snapshot: Snapshot) -> None:
        fit(snapshot, self._schema, ())

    def _fitted(self) -> Fit:
        if self._fit is None:
            snapshot = self._table().load()
            if snapshot is None and self._given.createtable:
                self._table().create(plain_schema(self._schema), self._given.partitionby)
                snapshot = self._table().load()
            if snapshot is None:
                raise absent(self._given)
            self._fit = fit(snapshot, self._schema, self._given.partitionby)
        return self._fit


def examined(
    options: LakeOptions, table: Table, place: Place, schema: pa.Schema | None
) -> list[Finding]:
    """The findings of a preflight, which creates nothing."""
    findings = [*place.preflight()]
    try:
        snapshot = table.load()
        if snapshot is None and not options.createtable:
            raise absent(options)
        if snapshot is not None and schema is None:
            findings += [Finding.error(what, remedy) for what, remedy in snapshot.problems()]
        elif snapshot is not None and schema is not None:
            fit(snapshot, schema, options.partitionby)
    except AbsError as error:
        findings.append(Finding.of(error))
    return findings


def absent(options: Any) -> ConfigError:
    """The error for a table that is not there."""
    return ConfigError(
        "There is no such table.", remedy="create it, or set createtable=true; or check its name."
    )
