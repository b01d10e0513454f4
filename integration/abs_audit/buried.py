"""A target together with the dead letters of its sink: what a job was given is in either, once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.carry import carried, quoted
from abs_audit.contracts import PLACE, Relation
from abs_audit.families import Type
from abs_audit.locate import side_of
from abs_audit.report import LeftBehind
from abs_clients.arrow import alike
from abs_core.errors import ConfigError, SchemaError
from abs_sinks.deadletters import KeptLetters, rows_of, schema_of
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

    @property
    def name(self) -> str:
        return f"{self.target.name} and its dead letters"

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        return self.target.columns(connection)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        ids = [each["id"] for each in self.letters.found() if self.is_of(each["sink"])]
        found = self.letters.shown(ids)
        with self.target.rows(connection, names) as there:
            rows = there
            for schema in sorted({each["schema"] for each in found}):
                those = [each for each in found if each["schema"] == schema]
                batch = rows_of([each["row"] for each in those], schema_of(schema))
                batch = self.target.unfolded(batch, [name for name in names if name != PLACE])
                places = pa.array([f"dead letter {each['id']}" for each in those], pa.string())
                table = _named(batch.append_column(PLACE, places), names)
                dead = carried(connection.from_arrow(table), names)
                types = zip(names, rows.types, strict=True)
                cast = (f"cast({quoted(n)} as {kind}) as {quoted(n)}" for n, kind in types)
                rows = rows.union(dead.project(", ".join(cast)))
            yield rows

    def left_behind(self) -> LeftBehind | None:
        return self.target.left_behind()


def with_dead_letters(
    target: Relation, url: str, table: str | None, deadletter: str, stateschema: str
) -> WithDeadLetters:
    """The target with the letters in ``deadletter``.

    Raises:
        ConfigError: the target's system keeps none.
    """
    found = format_at(url)
    letters, is_of = side_of(found).letters(url, deadletter, table, stateschema)
    if letters is None:
        raise ConfigError(f"{found.name} keeps no dead letters.", remedy="leave --deadletters out.")
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
