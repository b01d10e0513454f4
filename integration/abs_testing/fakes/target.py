"""The fake sink's target: a SQLite database with data, staged rows, markers and a register."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from abs_core.errors import RefusedError, UnavailableError

_DATA = """
CREATE TABLE IF NOT EXISTS data (id INTEGER, value TEXT);
CREATE INDEX IF NOT EXISTS data_by_id ON data (id);
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
