"""The constraints of a table that tie rows to one another: unique, exclusion and foreign keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

_UNIQUE = """
select c.relname::text as name,
       array(select pg_get_indexdef(i.indexrelid, k, true)
               from generate_series(1, i.indnkeyatts) k) as terms,
       case when i.indexprs is null then
           array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k(n, at)
                   join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.n
                  where k.at <= i.indnkeyatts order by k.at) else '{}' end as columns,
       not i.indimmediate as deferrable, i.indisexclusion as excludes, i.indisprimary as primary,
       coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false) as nulls_equal
  from pg_index i join pg_class c on c.oid = i.indexrelid
 where i.indrelid = %(oid)s and (i.indisunique or i.indisexclusion) and i.indisvalid
 order by c.relname
"""

_FOREIGN = """
select k.conname::text, k.conrelid, k.confrelid,
       array(select a.attname::text from unnest(k.conkey) with ordinality u(n, at)
               join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.n order by u.at),
       array(select a.attname::text from unnest(k.confkey) with ordinality u(n, at)
               join pg_attribute a on a.attrelid = k.confrelid and a.attnum = u.n order by u.at),
       k.condeferrable
  from pg_constraint k
 where k.contype = 'f' and k.conparentid = 0 and %(oid)s in (k.conrelid, k.confrelid)
 order by k.conname
"""

_DELETE_TRIGGERS = """
select exists (select from pg_trigger where tgrelid = %(oid)s and not tgisinternal
                  and tgenabled <> 'D' and tgtype & 8 <> 0)
"""


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index, or the index of an exclusion constraint.

    Args:
        terms: what is unique together, as SQL writes it: columns or expressions.
        columns: the same, if all of them are columns; else empty.
        nulls_equal: NULLS NOT DISTINCT.
    """

    name: str
    terms: tuple[str, ...]
    columns: tuple[str, ...]
    deferrable: bool
    excludes: bool
    primary: bool
    nulls_equal: bool


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key; ``table`` and ``of`` are the oids of the table that refers, and of the other."""

    name: str
    table: int
    of: int
    columns: tuple[str, ...]
    of_columns: tuple[str, ...]
    deferrable: bool


@dataclass(frozen=True, slots=True)
class Constraints:
    """What ties the rows of a table to one another and to those of other tables.

    Args:
        foreign: the foreign keys of the table, and those that refer to it.
        fires_on_delete: whether a trigger of the user's fires for deleted rows.
    """

    unique: tuple[Unique, ...] = ()
    foreign: tuple[ForeignKey, ...] = ()
    fires_on_delete: bool = False

    @property
    def defers(self) -> bool:
        """Whether one of them can be deferred."""
        return any(unique.deferrable for unique in self.unique) or any(
            key.deferrable for key in self.foreign
        )

    def besides(self, key: Sequence[str]) -> list[Unique]:
        """The unique and exclusion constraints that are not on exactly these columns."""
        return [
            unique for unique in self.unique if unique.excludes or set(unique.columns) != set(key)
        ]


def read_constraints(connection: Connection[Any], oid: int) -> Constraints:
    """Those of the table with this oid. The driver's errors pass through."""
    parameters = {"oid": oid}
    unique = [
        Unique(name, tuple(terms), tuple(columns), deferrable, excludes, primary, nulls_equal)
        for name, terms, columns, deferrable, excludes, primary, nulls_equal in connection.execute(
            _UNIQUE, parameters
        )
    ]
    foreign = [
        ForeignKey(row[0], row[1], row[2], tuple(row[3]), tuple(row[4]), row[5])
        for row in connection.execute(_FOREIGN, parameters)
    ]
    fires = connection.execute(_DELETE_TRIGGERS, parameters).fetchone()
    return Constraints(tuple(unique), tuple(foreign), fires == (True,))


def parents_first(tables: Sequence[tuple[int, Constraints]]) -> list[int]:
    """The numbers of these tables (oid, constraints), each after those that it refers to.

    Otherwise, and within a circle, the order is kept.
    """
    oids = {oid for oid, _ in tables}
    waits_for = [
        {key.of for key in of.foreign if key.table == oid and key.of in oids} - {oid}
        for oid, of in tables
    ]
    order: list[int] = []
    left = list(range(len(tables)))
    while left:
        missing = {tables[number][0] for number in left}
        ready = [number for number in left if not waits_for[number] & missing] or left[:1]
        order.append(ready[0])
        left.remove(ready[0])
    return order
