"""A target together with the dead letters of its sink: what a job was given is in either, once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.carry import carried, quoted
from abs_audit.contracts import PLACE, Relation
from abs_audit.families import Type
from abs_audit.locate import side_of
from abs_audit.report import LeftBehind
from abs_clients.arrow import alike
from abs_core.errors import ConfigError, DataError, SchemaError
from abs_sinks.deadletters.place import KeptLetters, readable
from abs_sinks.door import format_at


@dataclass(frozen=True, slots=True)
class WithDeadLetters(Relation):
    """The records of a target and, by value, those dead letters that were not replayed.

    Args:
        is_of: whether a letter's field ``sink`` is the target.
    """

    target: Relation
    letters: KeptLetters
    is_of: Callable[[str], bool]
    unread: dict[Any, str] = field(default_factory=dict, compare=False)
    """Those of the last read that could not be compared, by id, and why."""

    @property
    def name(self) -> str:
        return f"{self.target.name} and its dead letters"

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        return self.target.columns(connection)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        # A letter that says no sink may be of any.
        ids = [
            letter["id"]
            for letter in self.letters.found()
            if letter["sink"] is None or self.is_of(letter["sink"])
        ]
        groups, unread = readable(self.letters.shown(ids))
        self.unread.clear()
        self.unread.update(unread)
        with self.target.rows(connection, names) as there:
            rows = there
            for table in chain.from_iterable(
                self._records(letters, read, names) for letters, read in groups
            ):
                dead = carried(connection.from_arrow(table), names)
                # A column that was carried by an expression is named by it.
                types = zip(dead.columns, names, rows.types, strict=True)
                cast = (f"cast({quoted(c)} as {kind}) as {quoted(n)}" for c, n, kind in types)
                rows = rows.union(dead.project(", ".join(cast)))
            yield rows

    def _records(
        self, letters: Sequence[dict[str, Any]], rows: pa.RecordBatch, names: Sequence[str]
    ) -> Iterator[pa.Table]:
        """The records of letters' rows; one that cannot be compared is noted, and alone left out."""
        places = pa.array([f"dead letter {letter['id']}" for letter in letters], pa.string())
        try:
            batch = self.target.unfolded(rows, [name for name in names if name != PLACE])
            table = _named(batch.append_column(PLACE, places), names)
        except DataError as error:
            if len(letters) == 1:
                self.unread[letters[0]["id"]] = error.what
                return
            for row, letter in enumerate(letters):
                yield from self._records([letter], rows.slice(row, 1), names)
        else:
            yield table

    def left_behind(self) -> LeftBehind | None:
        left = self.target.left_behind()
        if not self.unread:
            return left
        named = [f"dead letter {id_}: {why}" for id_, why in self.unread.items()]
        left = left or LeftBehind()
        return replace(left, unchecked=(*left.unchecked, *named))


def with_dead_letters(
    target: Relation, url: str, table: str | None, deadletter: str, stateschema: str
) -> WithDeadLetters:
    """The target with the letters in ``deadletter``.

    Raises:
        ConfigError: the target's system keeps none.
    """
    format_ = format_at(url)
    letters, is_of = side_of(format_).letters(url, deadletter, table, stateschema)
    if letters is None:
        raise ConfigError(
            f"{format_.name} keeps no dead letters.", remedy="leave --deadletters out."
        )
    return WithDeadLetters(target, letters, is_of)


def _named(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Table:
    """The columns under the target's names, matched as the sink matches them."""
    columns = {}
    for name in names:
        match alike(name, batch.schema.names):
            case [source]:
                columns[name] = batch.column(source)
            case _:
                raise SchemaError(
                    f"The dead letters have no column {name!r}.",
                    remedy="compare the columns that they have (--columns); those of the option "
                    "deadlettercolumns are left out.",
                )
    return pa.table(columns)
