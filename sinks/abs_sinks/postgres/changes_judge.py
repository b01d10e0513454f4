"""The query that judges staged changes: the last change of each key, and every one with a problem.

``met`` sees what is there for each change, ``ordered`` puts those of a key in order. ``FIRST`` marks a
change that contradicts what was applied earlier, which stays; every other problem stops the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from abs_sinks.postgres.apply import columns_of
from abs_sinks.postgres.changes import GONE, Changes

FIRST = "first"
CLASH = "clash"
DELETED = sql.Identifier("abs:deleted")


def judging(changes: Changes, staged: sql.Composable) -> sql.Composed:
    """The query of the last change of each key, and of those with a problem.

    Args:
        staged: the query of all staged rows.
    """
    query = _judging(changes, staged)
    return sql.SQL('{} where "abs:apply" or "abs:problem" is not null').format(query)


def judging_each(changes: Changes, staged: sql.Composable, place: Sequence[str]) -> sql.Composed:
    """As ``judging``, for dead letters: the query of all rows, with ``place`` and ``abs:apply``.

    Of changes that contradict each other each one has the problem.

    Args:
        place: columns of ``staged`` before the plan's.
    """
    query = _judging(changes, staged, place)
    return sql.SQL(_EACH).format(
        query, columns_of(changes.key), columns_of(changes.sequence), problem=CLASH
    )


def _judging(changes: Changes, staged: sql.Composable, place: Sequence[str] = ()) -> sql.Composed:
    text = _JUDGE if changes.unchanged is None else _JUDGE_UNCHANGED
    more = sql.SQL(', "abs:apply"') if place else sql.SQL("")
    return sql.SQL(text).format(staged=staged, more=more, **_Parts(changes, place).all())


def equal(names: Sequence[str], left: str, right: str) -> sql.Composed:
    return sql.SQL(" and ").join(
        sql.SQL("{0}.{2} = {1}.{2}").format(sql.SQL(left), sql.SQL(right), sql.Identifier(name))
        for name in names
    )


def newer(changes: Changes, change: sql.Composable, there: sql.Composable) -> sql.Composable:
    """Whether a change is newer than the table's row, by the row's own position."""
    return sql.SQL("true") if changes.side else later(changes.sequence, change, there)


def later(sequence: Sequence[str], one: sql.Composable, other: sql.Composable) -> sql.Composed:
    """Whether one position is greater than the other, where NULL is the lowest."""
    return sql.SQL("coalesce({} > {}, true)").format(row_of(sequence, one), row_of(sequence, other))


def row_of(names: Sequence[str], of: sql.Composable) -> sql.Composed:
    columns = [sql.SQL("{}.{}").format(of, sql.Identifier(name)) for name in names]
    return sql.SQL("row({})").format(sql.SQL(", ").join(columns))


class _Parts:
    """The parts of the judging statements."""

    def __init__(self, changes: Changes, place: Sequence[str]) -> None:
        self._changes = changes
        self._place = place
        self._unchanged = changes.unchanged
        fixed = {*changes.key, *changes.sequence}
        self._free = [name for name in changes.written if name not in fixed]
        self._source = {p.column.name: p.source for p in changes.plan.columns}

    def all(self) -> dict[str, sql.Composable]:
        changes = self._changes
        s, t, p = sql.SQL("s"), sql.SQL("t"), sql.SQL("p")
        kept = list(dict.fromkeys([*self._place, *changes.written, *changes.sequence]))
        parts: dict[str, sql.Composable] = {
            "kept": columns_of(kept),
            "deletes": self._deletes(),
            "join_table": self._join_table(),
            "positions": changes.positions,
            "gone": sql.Identifier(GONE),
            "on_positions": equal(changes.key, "s", "p"),
            "fresh": sql.SQL("{} and {}").format(
                newer(changes, s, t), later(changes.sequence, s, p)
            ),
            "same": _same(changes),
            "differs": self._differs(),
            "key": columns_of(changes.key),
            "sequence": columns_of(changes.sequence),
            "clash": self._clash(),
            "incomplete": self._incomplete(),
            "first": sql.Literal(FIRST),
        }
        return parts | self._of_unchanged(kept) if self._unchanged is not None else parts

    def _join_table(self) -> sql.Composable:
        """The table, if its rows have the positions, or what a change leaves as it is."""
        changes = self._changes
        if changes.side and self._unchanged is None:
            return sql.SQL("")
        return sql.SQL("left join {} t on {}").format(
            changes.plan.table.identifier, equal(changes.key, "s", "t")
        )

    def _deletes(self) -> sql.Composed:
        deletes = self._changes.deletes
        if not deletes.values:
            return sql.SQL("{}").format(sql.Identifier(deletes.column))
        text = "{}::text = any({}::text[])"
        return sql.SQL(text).format(sql.Identifier(deletes.column), list(deletes.values))

    def _image(self) -> sql.Composed:
        """What two changes that are the same have in common."""
        names = [*self._changes.written, *([self._unchanged] if self._unchanged else [])]
        return sql.SQL("row({})").format(columns_of(names))

    def _differs(self) -> sql.Composed:
        """Whether a change of the same position is another one than was applied."""
        # By a query of its own: the join need not carry the table's other columns for all rows.
        changes = self._changes
        mine = row_of(changes.written, sql.SQL("s"))
        if self._unchanged is not None:
            columns = [self._known_or_old(name) for name in changes.written]
            mine = sql.SQL("row({})").format(sql.SQL(", ").join(columns))
        return sql.SQL(_DIFFERS).format(
            deleted=DELETED,
            there=self._there(),
            mine=mine,
            table=changes.plan.table.identifier,
            on=equal(changes.key, "s", "d"),
        )

    def _there(self) -> sql.Composed:
        """The table's row in the staged types: a domain is another type than its base type."""
        staged = {p.column.name: p.column.type.domain_of for p in self._changes.plan.columns}
        columns = [
            sql.SQL("d.{}::{}" if staged[name] else "d.{}").format(
                sql.Identifier(name), sql.SQL(staged[name])
            )
            for name in self._changes.written
        ]
        return sql.SQL("row({})").format(sql.SQL(", ").join(columns))

    def _clash(self) -> sql.Composed:
        """Whether the change before has the same key and position, and is another one."""
        lag = [
            sql.SQL("lag({0}) over w = {0}").format(sql.Identifier(name))
            for name in self._changes.sequence
        ]
        text = (
            "{} and (lag({d}) over w <> {d} or"
            " not {d} and record_image_ne(lag({image}) over w, {image}))"
        )
        return sql.SQL(text).format(sql.SQL(" and ").join(lag), d=DELETED, image=self._image())

    def _incomplete(self) -> sql.Composed:
        names = [*self._changes.key, *self._changes.sequence]
        nulls = [sql.SQL("{} is null").format(sql.Identifier(name)) for name in names]
        return sql.SQL(" or ").join([*nulls, sql.SQL("{} is null").format(DELETED)])

    def _lists(self, name: str) -> sql.Composed:
        """Whether a change leaves the column as it is."""
        assert self._unchanged is not None
        text = "coalesce({} = any({}), false)"
        return sql.SQL(text).format(self._source[name], sql.Identifier(self._unchanged))

    def _known_or_old(self, name: str) -> sql.Composed:
        column = sql.Identifier(name)
        if name not in self._free:
            return sql.SQL("s.{}").format(column)
        return sql.SQL("case when {1} then d.{0} else s.{0} end").format(column, self._lists(name))

    def _of_unchanged(self, kept: Sequence[str]) -> dict[str, sql.Composable]:
        key = sql.Identifier(self._changes.key[0])
        olds = [sql.SQL(', t.{} is not null as "abs:there"').format(key)]
        lasts, filled = [], []
        for number, name in enumerate(self._free):
            old, last = sql.Identifier(f"abs:old {number}"), sql.Identifier(f"abs:last {number}")
            column = sql.Identifier(name)
            olds.append(sql.SQL(", t.{} as {}").format(column, old))
            lasts.append(
                sql.SQL(', max("abs:n") filter (where not {} and not {}) over a as {}').format(
                    DELETED, self._lists(name), last
                )
            )
            filled.append(sql.SQL(_FILLED).format(column=column, last=last, old=old))
        # In the order of the kept columns, since a table is created of them.
        by_name = dict(zip(self._free, filled, strict=True))
        columns = [by_name.get(name, sql.Identifier(name)) for name in kept]
        assert self._unchanged is not None
        partial = sql.SQL("(not coalesce({} <@ {}::text[], true) and not {})").format(
            sql.Identifier(self._unchanged), list(self._changes.left_out), DELETED
        )
        return {
            "partial": partial,
            "exists": sql.SQL(_EXISTS).format(partial=partial),
            "unknown": sql.SQL("not coalesce({} <@ {}::text[], true)").format(
                sql.Identifier(self._unchanged),
                [*(self._source[name] for name in self._free), *self._changes.left_out],
            ),
            "olds": sql.SQL("").join(olds),
            "lasts": sql.SQL("").join(lasts),
            "filled": sql.SQL(", ").join(columns),
        }


def _same(changes: Changes) -> sql.Composed:
    """Whether a change has the position of what is there, or of the tombstone."""
    there = sql.SQL("p") if changes.side else sql.SQL("t")
    mine = row_of(changes.sequence, sql.SQL("s"))
    return sql.SQL("coalesce({0} = {1}, {0} = {2}, false)").format(
        mine, row_of(changes.sequence, there), row_of(changes.sequence, sql.SQL("p"))
    )


_DIFFERS = """
coalesce((select s.{deleted} or record_image_ne({there}, {mine}) from {table} d where {on}),
         not s.{deleted})"""

_MET = """
with staged as (
    select u.*, {deletes} as "abs:deleted" from ({staged}) u
), met as (
    select s.*, {fresh} as "abs:fresh", {same} as "abs:same",
           {same} and {differs} as "abs:first"{olds}
      from staged s {join_table} left join {positions} p on {on_positions}
), """

_JUDGE = (
    _MET.replace("{olds}", "")
    + """ordered as (
    select {kept}, "abs:deleted", "abs:fresh" and lead(true) over w is null as "abs:apply",
           case when {incomplete} then 'null' when {clash} then 'clash'
                when "abs:first" then {first} end as "abs:problem"
      from met window w as (partition by {key}, "abs:fresh" order by {sequence})
)
select {kept}, "abs:deleted", "abs:problem"{more} from ordered
"""
)

_EACH = """
select j.*, case when bool_or("abs:problem" = {problem}) over (partition by {1}, {2}) then {problem}
                 else "abs:problem" end as "abs:dead"
  from ({0}) j
"""

# Whether the row exists that a partial change changes: the last change before it that is not partial
# is no delete; without one, the table has it.
_EXISTS = """
case when max("abs:n") filter (where not {partial}) over v is null then "abs:there"
     else coalesce(max("abs:n") filter (where not {partial} and not "abs:deleted") over v, 0)
          = max("abs:n") filter (where not {partial}) over v end"""

_FILLED = """
case when {last} > coalesce("abs:last deleted", 0) then nth_value({column}, {last}::int) over b
     else {old} end as {column}"""

# Changes of a key are numbered in order. A column that the last one leaves as it is has the value of
# the last one that has it, unless a delete came later; else what the table has.
_JUDGE_UNCHANGED = (
    _MET
    + """placed as (
    select *, row_number() over w as "abs:n"
      from met window w as (partition by {key}, "abs:fresh" order by {sequence})
), ordered as (
    select *, "abs:fresh" and lead(true) over w is null as "abs:apply",
           case when {incomplete} then 'null' when {clash} then 'clash' when {unknown} then 'name'
                when "abs:first" then {first}
                when not {partial} then null
                when not "abs:fresh" and not bool_or("abs:same") over (partition by {key}) then 'older'
                when "abs:fresh" and not {exists} then 'missing'
                end as "abs:problem"
      from placed window w as (partition by {key}, "abs:fresh" order by {sequence}, "abs:n"),
        v as (partition by {key}, "abs:fresh" order by {sequence}, "abs:n"
              rows between unbounded preceding and 1 preceding)
), numbered as (
    select *, max("abs:n") filter (where "abs:deleted") over a as "abs:last deleted"{lasts}
      from ordered window a as (partition by {key}, "abs:fresh")
), filled as (
    select {filled}, "abs:deleted", "abs:problem", "abs:apply" from numbered
    window b as (partition by {key}, "abs:fresh" order by "abs:n"
                 rows between unbounded preceding and unbounded following)
)
select {kept}, "abs:deleted", "abs:problem"{more} from filled
"""
)
