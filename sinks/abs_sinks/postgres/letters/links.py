"""Which rows of an epoch may depend on one another: by key, unique value or foreign key.

A row has values of what it writes, and of what the table has under its key. They are compared as text.
It guides the search for dead rows and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from psycopg import Connection, sql

from abs_sinks.postgres.apply.target import ResolvedTable

Numbered = tuple[ResolvedTable, sql.Identifier]
"""A table, and the rows for it with their numbers (``abs:n``)."""

_CREATE = """
create unlogged table {} (n bigint, space text, value text, gives bool, needs bool)
"""

_NEW = """
insert into {links} select r."abs:n", {space}, {value}, {gives}, {needs} from {rows} r where {known}
"""

_OLD = """
insert into {links} select k."abs:n", {space}, {value}, {gives}, {needs}
  from {rows} k join {table} r on {on} where {known}
"""

_LINKED = """
select distinct b.n
  from {links} a join {links} b on b.space = a.space and b.value = a.value and b.n <> a.n
 where a.n = any({rows}::bigint[]) and ({all} or b.n = any({among}::bigint[]))
   and (a.gives and b.needs or a.needs and b.gives) and ({kind} in ('', left(a.space, 1)))
 limit {most}
"""


class Links:
    """The links of an epoch's rows, in a table that the transaction rolls back."""

    def __init__(
        self, connection: Connection[Any], table: sql.Identifier, rows: Sequence[Numbered]
    ) -> None:
        self._connection = connection
        self._table = table
        connection.execute(sql.SQL(_CREATE).format(table))
        for target, numbered in rows:
            for statement in self._statements(target, numbered, [other for other, _ in rows]):
                connection.execute(statement)
        connection.execute(
            sql.SQL("create index on {0} (n); create index on {0} (space, value)").format(table)
        )

    def linked(
        self, rows: Sequence[int], among: Sequence[int] | None, most: int, kind: str = ""
    ) -> set[int]:
        """Rows with which these share something; no more than ``most``.

        Args:
            among: only of these; None: of all.
            kind: ``k`` by key, ``u`` by a unique value, ``f`` by a foreign key; empty: by any.
        """
        query = sql.SQL(_LINKED).format(
            links=self._table,
            rows=list(rows),
            all=among is None,
            among=list(among or ()),
            kind=kind,
            most=most,
        )
        return {row[0] for row in self._connection.execute(query)}

    def _statements(
        self, target: ResolvedTable, rows: sql.Identifier, all_targets: Sequence[ResolvedTable]
    ) -> Iterator[sql.Composed]:
        for space, columns, gives, needs in _spaces(target, all_targets):
            parts = {
                "links": self._table,
                "rows": rows,
                "space": space,
                "value": sql.SQL("row({})::text").format(_columns("r", columns)),
                "gives": gives,
                "needs": needs,
                "known": sql.SQL(" and ").join(
                    [
                        sql.SQL("true"),
                        *(sql.SQL("{} is not null").format(c) for c in _each("r", columns)),
                    ]
                ),
                "table": target.table.identifier,
            }
            if set(columns) <= set(target.plan.names):
                yield sql.SQL(_NEW).format(**parts)
            if columns and target.key and columns != target.key:
                on = sql.SQL(" and ").join(
                    sql.SQL("{} = {}").format(one, other)
                    for one, other in zip(
                        _each("k", target.key), _each("r", target.key), strict=True
                    )
                )
                yield sql.SQL(_OLD).format(on=on, **parts)


def _spaces(
    target: ResolvedTable, all_targets: Sequence[ResolvedTable]
) -> Iterator[tuple[str, tuple[str, ...], bool, bool]]:
    """What rows have in common: its name, the columns, and who gives it and who needs it."""
    table, here = target.table, {other.table.oid for other in all_targets}
    if target.key:
        yield f"k {table.oid}", target.key, True, True
    for unique in table.constraints.besides(target.key):
        # Of expressions and exclusions the values are not known: all rows may depend on one another.
        columns = () if unique.excludes else unique.columns
        yield f"u {table.oid} {unique.name}", columns, True, True
    for key in table.constraints.foreign:
        space = f"f {key.table} {key.name}"
        if key.table == table.oid and key.of in here:
            yield space, key.columns, False, True
        if key.of == table.oid and key.table in here:
            yield space, key.of_columns, True, False


def _each(of: str, names: Sequence[str]) -> list[sql.Composed]:
    return [sql.SQL("{}.{}").format(sql.SQL(of), sql.Identifier(name)) for name in names]


def _columns(of: str, names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(_each(of, names))
