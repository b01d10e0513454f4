"""The fake writers, one for each commit protocol."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.errors import FencedError, SchemaError, TargetError
from abs_core.model import PROTOCOL, Committable
from abs_core.stepwise import StepwiseWriter
from abs_testing.fakes.target import FakeTarget, read
from abs_testing.harness import SCHEMA, Row


class FakeWriter(StepwiseWriter):
    """Collects a task's rows; a protocol says when they go to the target."""

    protocol: ClassVar[str]

    def __init__(self, target: FakeTarget, task: Task) -> None:
        super().__init__()
        self._target = target
        self._task = task
        self._handle = str(task.handle)
        self._taken: list[Row] = []

    def abort(self) -> None:
        """Nothing of it is in the target."""

    def _keep(self, batch: pa.RecordBatch) -> None:
        if batch.schema != SCHEMA:
            raise SchemaError(f"The fake target takes {SCHEMA}, not {batch.schema}.")
        self._taken += zip(batch["id"].to_pylist(), batch["value"].to_pylist(), strict=True)

    def _complete(self) -> None:
        """Rows arrive at once."""

    def _prepared(self) -> Committable:
        with self._target.transaction() as db:
            self._put(db)
        return self._committable()

    def _put(self, db: sqlite3.Connection) -> None:
        """Pre-commit the rows."""
        raise NotImplementedError

    def _committable(self) -> Committable:
        digest = hashlib.sha256(repr(self._taken).encode()).hexdigest()
        extra = () if self.protocol == "2pc" else ((PROTOCOL, self.protocol),)
        return Committable(self._task.handle, len(self._taken), f"sha256:{digest}", extra)


class TwoPhaseWriter(FakeWriter):
    """2pc: prepares the rows in one transaction."""

    protocol = "2pc"

    def _put(self, db: sqlite3.Connection) -> None:
        values = [self._handle, self._task.job, len(self._taken)]
        db.execute("INSERT INTO prepared VALUES (?, ?, ?)", values)
        stage(db, self._handle, self._taken)


class StagingWriter(FakeWriter):
    """wal: stages every batch at once; pre-commit checks the staged row count.

    A sweep may delete the staged rows of a zombie, whose pre-commit then fails.
    """

    protocol = "wal"
    _sealed = False

    def _keep(self, batch: pa.RecordBatch) -> None:
        super()._keep(batch)
        with self._target.transaction() as db:
            if not self._rows:
                values = [self._handle, self._task.job]
                db.execute("INSERT INTO prepared VALUES (?, ?, NULL)", values)
            stage(db, self._handle, self._taken[self._rows :])

    def _put(self, db: sqlite3.Connection) -> None:
        values = [len(self._taken), self._handle]
        sealed = db.execute("UPDATE prepared SET rows = ? WHERE handle = ?", values)
        if sealed.rowcount != 1:
            raise FencedError("The staged rows were swept by a newer run.", handle=self._handle)
        self._sealed = True

    def abort(self) -> None:
        if self._taken and not self._sealed:
            with suppress(TargetError), self._target.transaction() as db:
                drop(db, self._handle)


class UpsertWriter(FakeWriter):
    """idempotent: upserts by key in one transaction, which checks the register first."""

    protocol = "idempotent"

    def _put(self, db: sqlite3.Connection) -> None:
        self._check(db)
        upsert(db, self._taken)

    def _check(self, db: sqlite3.Connection) -> None:
        """Refuse a late attempt or a zombie, which would overwrite rows of a newer epoch."""
        task = self._task
        stored = read(db, task.job)
        state = None if stored is None else stored.state
        if (
            state is None
            or (state.register, state.generation) != (task.register, task.generation)
            or (state.last_decided is not None and state.last_decided >= task.epoch)
            or any(epoch <= task.epoch for epoch in state.abandoned)
        ):
            raise FencedError(
                "The epoch is decided or given up, or a newer run has taken over.",
                handle=self._handle,
            )


WRITERS = {each.protocol: each for each in (TwoPhaseWriter, StagingWriter, UpsertWriter)}


def stage(db: sqlite3.Connection, handle: str, rows: Sequence[Row]) -> None:
    db.executemany("INSERT INTO staged VALUES (?, ?, ?)", [(handle, *row) for row in rows])


def drop(db: sqlite3.Connection, handle: str) -> int:
    """Delete the staged or prepared rows of the handle; return their number."""
    db.execute("DELETE FROM staged WHERE handle = ?", [handle])
    return db.execute("DELETE FROM prepared WHERE handle = ?", [handle]).rowcount


def upsert(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """The last row of a key wins."""
    last = dict(rows)
    db.executemany("DELETE FROM data WHERE id = ?", [(key,) for key in last])
    db.executemany("INSERT INTO data VALUES (?, ?)", list(last.items()))
