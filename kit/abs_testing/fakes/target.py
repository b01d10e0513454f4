"""The fake sink's target, a SQLite database with data, staged rows and markers, and its register."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from abs_core.codec import state_from_text, state_to_text
from abs_core.contracts import Conflict, Inventory, Stored, Version, in_time
from abs_core.errors import RefusedError, UnavailableError
from abs_core.model import JobState
from abs_core.registers import check_finished, others_among

_DATA = """
CREATE TABLE IF NOT EXISTS data (id INTEGER, value TEXT);
CREATE INDEX IF NOT EXISTS data_by_id ON data (id);
CREATE TABLE IF NOT EXISTS applied
    (register TEXT, generation INTEGER, epoch INTEGER, sink INTEGER);
"""
_STATE = """
CREATE TABLE IF NOT EXISTS {at}staged (handle TEXT, id INTEGER, value TEXT);
CREATE TABLE IF NOT EXISTS {at}prepared (handle TEXT PRIMARY KEY, job TEXT, rows INTEGER);
CREATE TABLE IF NOT EXISTS {at}marker (handle TEXT PRIMARY KEY, job TEXT);
CREATE TABLE IF NOT EXISTS {at}register (job TEXT PRIMARY KEY, version TEXT, state TEXT);
CREATE TABLE IF NOT EXISTS {at}held (handle TEXT PRIMARY KEY);
CREATE INDEX IF NOT EXISTS {at}staged_by_handle ON staged (handle);
"""


class FakeTarget:
    """The database; every call is one transaction.

    Args:
        path: a file shared among processes, its folder made if missing; None: in memory, for this
            object only.
        state: another file for everything but the data; None: the same file.

    A file survives SIGKILL of its processes but not a power loss: it is never flushed. Two files are
    for tests in one process.
    """

    def __init__(self, path: Path | None = None, state: Path | None = None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.name = "memory" if path is None else str(path)
        self._path = ":memory:" if path is None else str(path)
        self._state = state
        self._open: sqlite3.Connection | None = None
        self._lock = Lock()

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            self._open = sqlite3.connect(
                self._path, timeout=10.0, isolation_level=None, check_same_thread=False
            )
            self._open.execute("PRAGMA synchronous = OFF")
            self._open.executescript(_DATA)
            if self._state is not None:
                self._open.execute("ATTACH ? AS state", [str(self._state)])
                # A transaction over two files flushes them, whatever "synchronous" says.
                self._open.executescript(
                    "PRAGMA state.synchronous = OFF;"
                    "PRAGMA main.journal_mode = MEMORY; PRAGMA state.journal_mode = MEMORY;"
                )
            self._open.executescript(_STATE.format(at="state." if self._state else ""))
        return self._open

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction, one at a time; maps the database's errors."""
        with self._lock:  # the embedded runtime writes from several threads
            try:
                connection = self._connection
                connection.execute("BEGIN IMMEDIATE")
                with connection:
                    yield connection
            except sqlite3.OperationalError as error:
                raise UnavailableError(
                    f"The fake target {self.name} does not answer: {error}"
                ) from error
            except sqlite3.Error as error:
                raise RefusedError(f"The fake target {self.name} refused: {error}") from error

    def close(self) -> None:
        """Close the connection; a target in memory keeps its data."""
        if self._open is not None and self._path != ":memory:":
            self._open.close()
            self._open = None


class FakeRegister(Inventory):
    """One row per job; ``UPDATE ... WHERE version = ...``."""

    def __init__(self, target: FakeTarget) -> None:
        self._target = target

    def load(self, job: str) -> Stored | None:
        with self._target.transaction() as db:
            return read(db, job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        in_time(job, deadline)
        with self._target.transaction() as db:
            return swap(db, job, expected, state)

    def jobs(self) -> Sequence[Stored]:
        with self._target.transaction() as db:
            names = [job for (job,) in db.execute("SELECT job FROM register ORDER BY job")]
            entries = [read(db, job) for job in names]
        return [stored for stored in entries if stored is not None]

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
