"""The register in the fake target itself."""

from __future__ import annotations

import sqlite3

from abs_core.codec import state_from_text, state_to_text
from abs_core.contracts import Conflict, Stored, Version
from abs_core.model import JobState
from abs_core.testing.fakes.target import FakeTarget


class FakeRegister:
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


def read(db: sqlite3.Connection, job: str) -> Stored | None:
    """The job's cell, within a transaction."""
    row = db.execute("SELECT state, version FROM register WHERE job = ?", [job]).fetchone()
    return None if row is None else Stored(state_from_text(row[0], "fake"), str(row[1]))


def swap(
    db: sqlite3.Connection, job: str, expected: Version | None, state: JobState
) -> Version | Conflict:
    """Compare-and-set within a transaction that may do more."""
    text = state_to_text(state)
    if expected is None:
        done = db.execute("INSERT OR IGNORE INTO register VALUES (?, 1, ?)", [job, text])
        return "1" if done.rowcount == 1 else Conflict()
    done = db.execute(
        "UPDATE register SET version = version + 1, state = ? WHERE job = ? AND version = ?",
        [text, job, int(expected)],
    )
    return str(int(expected) + 1) if done.rowcount == 1 else Conflict()
