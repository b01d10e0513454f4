"""The register in the fake target itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from abs_core.codec import state_from_text, state_to_text
from abs_core.contracts import Conflict, Inventory, Stored, Version
from abs_core.inventory import check_finished, others_among
from abs_core.model import JobState
from abs_testing.fakes.target import FakeTarget


class FakeRegister(Inventory):
    """One row per job; ``UPDATE ... WHERE version = ...``."""

    def __init__(self, target: FakeTarget) -> None:
        self._target = target

    def load(self, job: str) -> Stored | None:
        with self._target.transaction() as db:
            return read(db, job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState
    ) -> Version | Conflict:
        with self._target.transaction() as db:
            return swap(db, job, expected, state)

    def jobs(self) -> Sequence[Stored]:
        with self._target.transaction() as db:
            names = [job for (job,) in db.execute("SELECT job FROM register ORDER BY job")]
            found = [read(db, job) for job in names]
        return [stored for stored in found if stored is not None]

    def others_on(self, target: str, job: str) -> Sequence[str]:
        return others_among((stored.state for stored in self.jobs()), target, job)

    def retire(self, job: str) -> bool:
        with self._target.transaction() as db:
            stored = read(db, job)
            if stored is None:
                return False
            check_finished(stored.state)
            db.execute("DELETE FROM register WHERE job = ?", [job])
            return True

    def place(self, job: str) -> str:
        return f"row {job} of table register of {self._target.name}"


def read(db: sqlite3.Connection, job: str) -> Stored | None:
    """The job's cell, within a transaction."""
    row = db.execute("SELECT state, version FROM register WHERE job = ?", [job]).fetchone()
    if row is None:
        return None
    state = state_from_text(row[0], "fake")
    return Stored(state, row[1])


def swap(
    db: sqlite3.Connection, job: str, expected: Version | None, state: JobState
) -> Version | Conflict:
    """Compare-and-set within a transaction that may do more."""
    stored = read(db, job)
    if (None if stored is None else stored.version) != expected:
        return Conflict()
    number = 1 if expected is None else int(expected.partition(".")[0]) + 1
    # With the register's id: a deleted and recreated cell has other versions.
    version = f"{number}.{state.register}"
    cell = [job, version, state_to_text(state)]
    db.execute("INSERT OR REPLACE INTO register VALUES (?, ?, ?)", cell)
    return version
