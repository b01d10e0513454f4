"""The statements that judge staged changes, and apply them.

All run in one transaction, after a lock that makes those who apply changes to one table take turns. It
is taken in a statement of its own: the snapshot of the next statement then shows what the others did.
Keys and positions are compared by the server only.

``judging`` reduces the changes of each key to the last one. Its rows go to a table (``judged``), which
the other statements read. A row with a problem is not applied; ``FIRST`` is a change that contradicts
what was applied earlier, which stays; every other problem stops the epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from psycopg import sql

from abs_core.errors import DataError
from abs_sinks.postgres.apply import columns_of, inserting
from abs_sinks.postgres.changes import GONE, Changes

log = logging.getLogger(__name__)

FIRST = "first"
_DELETED, _PROBLEM = sql.Identifier("abs:deleted"), sql.Identifier("abs:problem")

_LOCK = "select pg_advisory_xact_lock(1633842994, (to_regclass({})::oid::int8 - 2147483648)::int4)"
"""The first number is "abs2" in ASCII."""


def locking(changes: Changes) -> sql.Composed:
    """Wait until no one else applies changes to the table; until the transaction ends."""
    return sql.SQL(_LOCK).format(changes.plan.table.label)


def judging(changes: Changes, staged: sql.Composable) -> sql.Composed:
    """The query of the last change of each key, and of those with a problem.

    Args:
        staged: the query of all staged rows.
    """
    parts = _Parts(changes)
    return sql.SQL(_JUDGE if changes.unchanged is None else _JUDGE_UNCHANGED).format(
        staged=staged, **parts.all()
    )


def applying(changes: Changes, judged: sql.Identifier) -> list[sql.Composed]:
    """Delete rows, upsert rows, keep positions, drop old tombstones."""
    return [
        _deleting(changes, judged),
        _upserting(changes, judged),
        _keeping(changes, judged),
        _expiring(changes),
    ]


def _deleting(changes: Changes, judged: sql.Identifier) -> sql.Composed:
    return sql.SQL("delete from {} t using {} j where {} and j.{} and {} and {}").format(
        changes.plan.table.identifier,
        judged,
        _equal(changes.key, "j", "t"),
        _DELETED,
        _fine(judged),
        _newer(changes, sql.SQL("j"), sql.SQL("t")),
    )


def _upserting(changes: Changes, judged: sql.Identifier) -> sql.Composed:
    source = sql.SQL("select {} from {} j where not {} and {}").format(
        columns_of(changes.written), judged, _DELETED, _fine(judged)
    )
    table = changes.plan.table.identifier
    guard = _newer(changes, sql.SQL("excluded"), table)
    upsert = inserting(changes.plan, source, changes.key, changes.written)
    return sql.SQL("{} where {}").format(upsert, guard)


def _keeping(changes: Changes, judged: sql.Identifier) -> sql.Composed:
    """Upsert tombstones; with ``positions=side`` the position of every row."""
    named = [*changes.key, *changes.sequence]
    which = sql.SQL("true") if changes.side else sql.SQL("j.{}").format(_DELETED)
    columns, gone = columns_of(named), sql.Identifier(GONE)
    return sql.SQL(_KEEP).format(
        positions=changes.positions,
        columns=columns,
        gone=gone,
        deleted=_DELETED,
        judged=judged,
        which=which,
        fine=_fine(judged),
        key=columns_of(changes.key),
        set=sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name))
            for name in (*changes.sequence, GONE)
        ),
        newer=_later(changes.sequence, sql.SQL("excluded"), sql.SQL("p")),
    )


_KEEP = """
insert into {positions} as p ({columns}, {gone})
select {columns}, case when {deleted} then now() end from {judged} j where {which} and {fine}
on conflict ({key}) do update set {set} where {newer}
"""


def error_of(changes: Changes, found: tuple[Any, ...] | None) -> DataError | None:
    """The error for the result of ``finding``, if it stops the epoch; else it is logged."""
    if found is None:
        return None
    problem, key, position, count = found
    which = (
        f"{count} of the changes of table {changes.plan.table.label}, the first with key "
        f"({columns_of(changes.key).as_string()}) = ({str(key)[:200]}) and position "
        f"({columns_of(changes.sequence).as_string()}) = ({str(position)[:200]})"
    )
    if problem == FIRST:
        log.warning(
            "changes have the position of another change that was applied before, which stays: %s",
            which,
        )
        return None
    what, remedy = _PROBLEMS[problem]
    return DataError(f"{what}: {which}. Nothing of the epoch is applied.", remedy=remedy)


_PROBLEMS = {
    "null": (
        "The key, the position or the operation of a change is NULL",
        "fill or filter such rows in Spark.",
    ),
    "clash": (
        "Two different changes of one key have the same position",
        "add a column to sequenceby that tells them apart; or keep one of them in Spark.",
    ),
    "older": (
        "A change with unchanged columns is older than its row",
        (
            "changes of a key with unchanged columns must arrive in order, as from one partition of "
            "Debezium's topic: what they leave as it is cannot be known otherwise."
        ),
    ),
    "missing": (
        "A change leaves columns as they are, and its row does not exist",
        (
            "load a snapshot of the source's table first; or let the source send whole rows (in "
            "PostgreSQL ALTER TABLE ... REPLICA IDENTITY FULL)."
        ),
    ),
    "name": (
        "A change lists columns as unchanged that the table does not have, or of its key or position",
        "list columns of the input by their names, and not those of key and sequenceby.",
    ),
}


def finding(changes: Changes, judged: sql.Identifier) -> sql.Composed:
    """The query of a problem, its first key and position, and its number; no row if there is none.

    Problems that stop the epoch come first.
    """
    return sql.SQL(_FIND).format(
        problem=_PROBLEM,
        key=columns_of(changes.key),
        position=columns_of(changes.sequence),
        judged=judged,
        first=FIRST,
    )


_FIND = """
select {problem}, concat_ws(', ', {key}), concat_ws(', ', {position}),
       count(*) over (partition by {problem})
  from {judged} where {problem} is not null
 order by {problem} = {first}, {problem}, {position}, {key} limit 1
"""


def _fine(judged: sql.Identifier) -> sql.Composed:
    """Whether the row of ``j`` is applied: never beside one that stops the epoch."""
    text = "j.{0} is null and not exists (select from {1} where {0} <> {2})"
    return sql.SQL(text).format(_PROBLEM, judged, FIRST)


def _equal(names: Sequence[str], left: str, right: str) -> sql.Composed:
    return sql.SQL(" and ").join(
        sql.SQL("{0}.{2} = {1}.{2}").format(sql.SQL(left), sql.SQL(right), sql.Identifier(name))
        for name in names
    )


def _newer(changes: Changes, change: sql.Composable, there: sql.Composable) -> sql.Composable:
    """Whether a change is newer than the table's row, by the row's own position."""
    return sql.SQL("true") if changes.side else _later(changes.sequence, change, there)


def _later(sequence: Sequence[str], one: sql.Composable, other: sql.Composable) -> sql.Composed:
    """Whether one position is greater than the other, where NULL is the lowest."""
    return sql.SQL("coalesce({} > {}, true)").format(_row(sequence, one), _row(sequence, other))


def _row(names: Sequence[str], of: sql.Composable) -> sql.Composed:
    columns = [sql.SQL("{}.{}").format(of, sql.Identifier(name)) for name in names]
    return sql.SQL("row({})").format(sql.SQL(", ").join(columns))


def _expiring(changes: Changes) -> sql.Composed:
    """Delete tombstones of their age, by the server's clock."""
    return sql.SQL("delete from {} where {} < now() - make_interval(secs => {})").format(
        changes.positions, sql.Identifier(GONE), changes.tombstones
    )


class _Parts:
    """The parts of the judging statements."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._unchanged = changes.unchanged
        fixed = {*changes.key, *changes.sequence}
        self._free = [name for name in changes.written if name not in fixed]
        self._source = {p.column.name: p.source for p in changes.plan.columns}

    def all(self) -> dict[str, sql.Composable]:
        changes = self._changes
        s, t, p = sql.SQL("s"), sql.SQL("t"), sql.SQL("p")
        kept = list(dict.fromkeys([*changes.written, *changes.sequence]))
        parts: dict[str, sql.Composable] = {
            "names": sql.SQL(", ").join(map(self._staged, changes.plan.names)),
            "kept": columns_of(kept),
            "deletes": self._deletes(),
            "image": self._image(),
            "table": changes.plan.table.identifier,
            "positions": changes.positions,
            "gone": sql.Identifier(GONE),
            "on_table": _equal(changes.key, "s", "t"),
            "on_positions": _equal(changes.key, "s", "p"),
            "there": sql.SQL("t.{} is not null").format(sql.Identifier(changes.key[0])),
            "fresh": sql.SQL("{} and {}").format(
                _newer(changes, s, t), _later(changes.sequence, s, p)
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

    def _staged(self, name: str) -> sql.Composed:
        collation = ' collate pg_catalog."C" as {0}' if name in self._changes.texts else ""
        return sql.SQL("{0}" + collation).format(sql.Identifier(name))

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
        changes = self._changes
        mine = _row(changes.written, sql.SQL("s"))
        if self._unchanged is not None:
            columns = [self._known_or_old(name) for name in changes.written]
            mine = sql.SQL("row({})").format(sql.SQL(", ").join(columns))
        image = sql.SQL("record_image_ne({}, {})").format(_row(changes.written, sql.SQL("t")), mine)
        text = "case when t.{key} is null then not s.{deleted} else s.{deleted} or {image} end"
        return sql.SQL(text).format(
            key=sql.Identifier(changes.key[0]), deleted=_DELETED, image=image
        )

    def _clash(self) -> sql.Composed:
        """Whether the change before has the same key and position, and is another one."""
        lag = [
            sql.SQL("lag({0}) over w = {0}").format(sql.Identifier(name))
            for name in self._changes.sequence
        ]
        text = (
            "{} and (lag({d}) over w <> {d} or"
            ' not {d} and record_image_ne(lag("abs:image") over w, "abs:image"))'
        )
        return sql.SQL(text).format(sql.SQL(" and ").join(lag), d=_DELETED)

    def _incomplete(self) -> sql.Composed:
        names = [*self._changes.key, *self._changes.sequence]
        nulls = [sql.SQL("{} is null").format(sql.Identifier(name)) for name in names]
        return sql.SQL(" or ").join([*nulls, sql.SQL("{} is null").format(_DELETED)])

    def _lists(self, name: str) -> sql.Composed:
        """Whether a change leaves the column as it is."""
        assert self._unchanged is not None
        text = "coalesce({} = any({}), false)"
        return sql.SQL(text).format(self._source[name], sql.Identifier(self._unchanged))

    def _known_or_old(self, name: str) -> sql.Composed:
        column = sql.Identifier(name)
        if name not in self._free:
            return sql.SQL("s.{}").format(column)
        return sql.SQL("case when {1} then t.{0} else s.{0} end").format(column, self._lists(name))

    def _of_unchanged(self, kept: Sequence[str]) -> dict[str, sql.Composable]:
        olds, lasts, filled = [], [], []
        for number, name in enumerate(self._free):
            old, last = sql.Identifier(f"abs:old {number}"), sql.Identifier(f"abs:last {number}")
            column = sql.Identifier(name)
            olds.append(sql.SQL(", t.{} as {}").format(column, old))
            lasts.append(
                sql.SQL(', max("abs:n") filter (where not {} and not {}) over a as {}').format(
                    _DELETED, self._lists(name), last
                )
            )
            filled.append(sql.SQL(_FILLED).format(column=column, last=last, old=old))
        # In the order of the kept columns, since a table is created of them.
        by_name = dict(zip(self._free, filled, strict=True))
        columns = [by_name.get(name, sql.Identifier(name)) for name in kept]
        assert self._unchanged is not None
        return {
            "partial": sql.SQL("(coalesce(cardinality({}), 0) > 0 and not {})").format(
                sql.Identifier(self._unchanged), _DELETED
            ),
            "unknown": sql.SQL("not coalesce({} <@ {}::text[], true)").format(
                sql.Identifier(self._unchanged), [self._source[name] for name in self._free]
            ),
            "olds": sql.SQL("").join(olds),
            "lasts": sql.SQL("").join(lasts),
            "filled": sql.SQL(", ").join(columns),
        }


def _same(changes: Changes) -> sql.Composed:
    """Whether a change has the position of what is there, or of the tombstone."""
    there = sql.SQL("p") if changes.side else sql.SQL("t")
    mine = _row(changes.sequence, sql.SQL("s"))
    return sql.SQL("coalesce({0} = {1}, {0} = {2}, false)").format(
        mine, _row(changes.sequence, there), _row(changes.sequence, sql.SQL("p"))
    )


_MET = """
with staged as (
    select u.*, {deletes} as "abs:deleted", {image} as "abs:image"
      from (select {names} from ({staged}) r) u
), met as (
    select s.*, {there} as "abs:there", {fresh} as "abs:fresh", {same} as "abs:same",
           {same} and {differs} as "abs:first"{olds}
      from staged s left join {table} t on {on_table} left join {positions} p on {on_positions}
), """

_JUDGE = (
    _MET.replace("{olds}", "")
    + """ordered as (
    select {kept}, "abs:deleted", "abs:fresh" and lead(true) over w is null as "abs:apply",
           case when {incomplete} then 'null' when {clash} then 'clash'
                when "abs:first" then {first} end as "abs:problem"
      from met window w as (partition by {key}, "abs:fresh" order by {sequence})
)
select {kept}, "abs:deleted", "abs:problem"
  from ordered where "abs:apply" or "abs:problem" is not null
"""
)

_FILLED = """
case when {last} > coalesce("abs:last deleted", 0) then nth_value({column}, {last}::int) over b
     else {old} end as {column}"""

# Changes of a key are numbered in order. A column that the last one leaves as it is has the value of
# the last one that has it, unless a delete came later; else what the table has.
_JUDGE_UNCHANGED = (
    _MET
    + """ordered as (
    select *, "abs:fresh" and lead(true) over w is null as "abs:apply", row_number() over w as "abs:n",
           case when {incomplete} then 'null' when {clash} then 'clash' when {unknown} then 'name'
                when "abs:first" then {first}
                when not {partial} then null
                when not "abs:fresh" and not bool_or("abs:same") over (partition by {key}) then 'older'
                when "abs:fresh" and coalesce(lag("abs:deleted") over w, not "abs:there") then 'missing'
                end as "abs:problem"
      from met window w as (partition by {key}, "abs:fresh" order by {sequence})
), numbered as (
    select *, max("abs:n") filter (where "abs:deleted") over a as "abs:last deleted"{lasts}
      from ordered window a as (partition by {key}, "abs:fresh")
), filled as (
    select {filled}, "abs:deleted", "abs:problem", "abs:apply" from numbered
    window b as (partition by {key}, "abs:fresh" order by "abs:n"
                 rows between unbounded preceding and unbounded following)
)
select {kept}, "abs:deleted", "abs:problem" from filled where "abs:apply" or "abs:problem" is not null
"""
)
