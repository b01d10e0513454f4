"""Several statements as one message to the server, and the results of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Cursor, sql


class Result(NamedTuple):
    """The result of one of several statements."""

    affected: int
    row: tuple[Any, ...] | None


def results_of(cursor: Cursor[Any]) -> list[Result]:
    results = []
    more: bool | None = True
    while more:
        results.append(Result(cursor.rowcount, cursor.fetchone() if cursor.description else None))
        more = cursor.nextset()
    return results


class Message:
    """Statements that wait until they are sent with the next ones.

    Args:
        waiting: the second one may return a row, which ``row`` is once they are sent.
    """

    def __init__(self, *waiting: sql.Composable) -> None:
        self._waiting = list(waiting)
        self.row: tuple[Any, ...] | None = None

    def wait(self, statements: Sequence[sql.Composable]) -> None:
        """Let these wait, too."""
        self._waiting += statements

    def text(self, statements: Sequence[sql.Composable]) -> sql.Composed:
        """What waits, and these; each of these is one statement."""
        return sql.SQL("; ").join([*self._waiting, *statements])

    def results(self, cursor: Cursor[Any], statements: Sequence[sql.Composable]) -> list[Result]:
        """The results of ``statements`` after ``text`` was executed; nothing waits any more."""
        results = results_of(cursor)
        if self._waiting:
            # One of them may be several statements: so those that were added are the last ones.
            self.row = results[1].row
            self._waiting = []
        return results[len(results) - len(statements) :]
