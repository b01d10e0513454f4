"""The fake writers, one for each commit protocol."""

from __future__ import annotations

import hashlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.errors import FencedError, SchemaError, TargetError
from abs_core.fakes.register import read
from abs_core.fakes.target import FakeTarget
from abs_core.model import PROTOCOL, Committable
from abs_core.testing.harness import SCHEMA, Row


class _Rows:
    """What one writer was given, and the committable that describes it."""

    def __init__(self, task: Task, protocol: str) -> None:
        self.task = task
        self.protocol = protocol
        self.handle = str(task.handle)
        self.batches = 0
        self.rows: list[Row] = []

    def take(self, batch: pa.RecordBatch) -> list[Row]:
        if batch.schema != SCHEMA:
            raise SchemaError(f"The fake target takes {SCHEMA}, not {batch.schema}.")
        taken = list(zip(batch["id"].to_pylist(), batch["value"].to_pylist(), strict=True))
        self.rows += taken
        return taken

    def counted(self) -> None:
        self.batches += 1
        if self.batches == 1:
            reached(CrashPoint.AFTER_FIRST_BATCH)

    def committable(self) -> Committable:
        digest = hashlib.sha256(repr(self.rows).encode()).hexdigest()
        extra = () if self.protocol == "2pc" else ((PROTOCOL, self.protocol),)
        return Committable(self.task.handle, len(self.rows), f"sha256:{digest}", extra)


class _HoldingWriter(ABC):
    """Holds the rows back, and puts them there in one transaction."""

    protocol: ClassVar[str]

    def __init__(self, target: FakeTarget, task: Task) -> None:
        self._target = target
        self._rows = _Rows(task, self.protocol)

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows.take(batch)
        self._rows.counted()

    def pre_commit(self) -> Committable | None:
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        if not self._rows.rows:
            return None
        with self._target.transaction() as db:
            self._put(db, self._rows)
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return self._rows.committable()

    def abort(self) -> None:
        self._rows.rows = []

    @abstractmethod
    def _put(self, db: sqlite3.Connection, mine: _Rows) -> None: ...


class TwoPhaseWriter(_HoldingWriter):
    """2pc: prepares the rows."""

    protocol = "2pc"

    def _put(self, db: sqlite3.Connection, mine: _Rows) -> None:
        values = [mine.handle, mine.task.job, len(mine.rows)]
        db.execute("INSERT INTO prepared VALUES (?, ?, ?)", values)
        stage(db, mine.handle, mine.rows)


class StagingWriter:
    """wal: stages every batch at once; pre-commit seals what is staged by its row count.

    A sweep may take the staging away from under a zombie: its pre-commit then fails.
    """

    def __init__(self, target: FakeTarget, task: Task) -> None:
        self._target = target
        self._rows = _Rows(task, "wal")
        self._sealed = False

    def write(self, batch: pa.RecordBatch) -> None:
        mine = self._rows
        taken = mine.take(batch)
        with self._target.transaction() as db:
            if mine.batches == 0:
                db.execute("INSERT INTO prepared VALUES (?, ?, NULL)", [mine.handle, mine.task.job])
            stage(db, mine.handle, taken)
        mine.counted()

    def pre_commit(self) -> Committable | None:
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        mine = self._rows
        if not mine.rows:
            self.abort()
            return None
        with self._target.transaction() as db:
            sealed = db.execute(
                "UPDATE prepared SET rows = ? WHERE handle = ?", [len(mine.rows), mine.handle]
            )
            if sealed.rowcount != 1:
                raise FencedError("The staged rows were swept by a newer run.", handle=mine.handle)
        self._sealed = True
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return mine.committable()

    def abort(self) -> None:
        if self._rows.batches and not self._sealed:
            with suppress(TargetError), self._target.transaction() as db:
                drop(db, self._rows.handle)


class UpsertWriter(_HoldingWriter):
    """idempotent: upserts by key in one transaction, which checks the register first."""

    protocol = "idempotent"

    def _put(self, db: sqlite3.Connection, mine: _Rows) -> None:
        self._check(db)
        upsert(db, mine.rows)

    def _check(self, db: sqlite3.Connection) -> None:
        """A late loser, or a zombie, must not overwrite what a newer epoch wrote."""
        task = self._rows.task
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
                handle=self._rows.handle,
            )


def stage(db: sqlite3.Connection, handle: str, rows: Sequence[Row]) -> None:
    db.executemany("INSERT INTO staged VALUES (?, ?, ?)", [(handle, *row) for row in rows])


def drop(db: sqlite3.Connection, handle: str) -> int:
    """Drop what is staged or prepared under the handle; how much there was of it."""
    db.execute("DELETE FROM staged WHERE handle = ?", [handle])
    return db.execute("DELETE FROM prepared WHERE handle = ?", [handle]).rowcount


def upsert(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """The last row of a key wins."""
    last = dict(rows)
    db.executemany("DELETE FROM data WHERE id = ?", [(key,) for key in last])
    db.executemany("INSERT INTO data VALUES (?, ?)", list(last.items()))
