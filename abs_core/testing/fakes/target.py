"""What a fake sink writes to: a SQLite database with data, staged rows, markers and a register."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from abs_core.errors import RefusedError, UnavailableError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS data (id INTEGER, value TEXT);
CREATE TABLE IF NOT EXISTS staged (handle TEXT, id INTEGER, value TEXT);
CREATE TABLE IF NOT EXISTS prepared (handle TEXT PRIMARY KEY, job TEXT, rows INTEGER);
CREATE TABLE IF NOT EXISTS marker (handle TEXT PRIMARY KEY, job TEXT);
CREATE TABLE IF NOT EXISTS register (job TEXT PRIMARY KEY, version INTEGER, state TEXT);
CREATE TABLE IF NOT EXISTS held (handle TEXT PRIMARY KEY);
CREATE INDEX IF NOT EXISTS staged_by_handle ON staged (handle);
CREATE INDEX IF NOT EXISTS data_by_id ON data (id);
"""


class FakeTarget:
    """The database; every call is one transaction.

    Args:
        path: of the file, shared among processes, its folder made if need be; in memory, for this
            object alone, where None.

    A file outlives its processes' SIGKILL, not a loss of power: it is never flushed.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.name = "memory" if path is None else str(path)
        self._path = ":memory:" if path is None else str(path)
        self._open: sqlite3.Connection | None = None
        self._lock = Lock()

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            self._open = sqlite3.connect(
                self._path, timeout=10.0, isolation_level=None, check_same_thread=False
            )
            self._open.execute("PRAGMA synchronous = OFF")
            self._open.executescript(_SCHEMA)
        return self._open

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, one at a time; a failure of the database is mapped to its error here."""
        with self._lock:  # the embedded runtime writes from several threads
            try:
                connection = self._connection
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                raise UnavailableError(
                    f"The fake target {self.name} does not answer: {error}"
                ) from error
            except sqlite3.Error as error:
                raise RefusedError(f"The fake target {self.name} refused: {error}") from error

    def close(self) -> None:
        """Close the connection; a target in memory stays, as the server it stands for does."""
        if self._open is not None and self._path != ":memory:":
            self._open.close()
            self._open = None
