"""The query that picks the winners: the last change of each key, and every one with a problem.

``met`` sees what is there for each change, ``ordered`` puts those of a key in order. ``FIRST`` marks a
change that contradicts what was applied earlier, which stays; every other problem stops the epoch.

An example: the table has key 1 by a change of position 5, and key 2 was deleted by one of position 7.

    id | at   | op | v     | becomes
    1  | 4    | u  | four  | left out: older than its row
    1  | 5    | u  | other | first: another change of this position was applied before
    1  | 6    | u  | six   | left out: not the last of its key
    1  | 8    | u  | eight | applied
    2  | 6    | c  | back  | left out: older than the key's tombstone
    2  | 7    | d  | null  | left out: the delete itself, once more
    3  | 1    | c  | new   | applied
    4  | 2    | c  | one   | left out: has the position of the next change
    4  | 2    | c  | two   | clash: another change of this epoch has its position
    5  | 3    | d  | null  | applied: a delete leaves a tombstone
    6  | null | u  | odd   | null: no position
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from abs_clients.postgres.name import columns_of
from abs_sinks.postgres.apply import committed
from abs_sinks.postgres.apply.changes import GONE, Changes, equal, later, newer, row_of

FIRST = "first"
CLASH = "clash"
DELETED = sql.Identifier("abs:deleted")


def winners_of(changes: Changes, staged: sql.Composable) -> sql.Composed:
    """The query of the last change of each key, and of those with a problem.

    Args:
        staged: the query of all staged rows.
    """
    query = _query(changes, staged)
    return sql.SQL('{} where "abs:apply" or "abs:problem" is not null').format(query)


def every_change(changes: Changes, staged: sql.Composable, place: Sequence[str]) -> sql.Composed:
    """As ``winners_of``, for dead letters: the query of all rows, with ``place`` and ``abs:apply``.

    Of changes that contradict each other each one has the problem.

    Args:
        place: columns of ``staged`` before the plan's.
    """
    query = _query(changes, staged, place)
    return sql.SQL(_EACH).format(
        query, columns_of(changes.key), columns_of(changes.sequence), problem=CLASH
    )


def _query(changes: Changes, staged: sql.Composable, place: Sequence[str] = ()) -> sql.Composed:
    text = _WINNERS if changes.unchanged is None else _WINNERS_UNCHANGED
    more = sql.SQL(', "abs:apply"') if place else sql.SQL("")
    return sql.SQL(text).format(staged=staged, more=more, **_Parts(changes, place).all())


class _Parts:
    """The parts of the statements."""

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
        timed = [] if changes.committed is None else [changes.committed]
        named = [*self._place, *changes.written, *changes.sequence, *timed]
        kept = list(dict.fromkeys(named))
        parts: dict[str, sql.Composable] = {
            "kept": columns_of(kept),
            "deletes": self._deletes(),
            "join_table": self._join_table(),
            "positions": changes.positions,
            "gone": sql.Identifier(GONE),
            "on_positions": equal(changes.key, "s", "p"),
            "fresh": sql.SQL("{} and ({} or {})").format(
                newer(changes, s, t), later(changes.sequence, s, p), self._respelled()
            ),
            "same": sql.SQL("{} and not {}").format(_same(changes), self._respelled()),
            "differs": self._differs(),
            "key": columns_of(changes.key),
            "order": self._order(),
            "clash": self._clash(),
            "incomplete": self._incomplete(),
            "first": sql.Literal(FIRST),
            # No dead letter is made of it: it stops the epoch, and all that come after.
            "again": sql.SQL("false") if self._place else committed.is_again(changes),
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
            anew=self._anew("s.{0}", "d.{0}"),
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

    def _order(self) -> sql.Composed:
        """The order of the changes of a key; of one position, a delete is the first."""
        order = columns_of(self._changes.sequence)
        return sql.SQL("{}, {} desc").format(order, DELETED) if self._changes.spelled else order

    def _clash(self) -> sql.Composed:
        """Whether the change before has the same key and position, and is another one.

        A source that writes a key anew (1.0 as 1.00) sends a delete and a create of one position, whose
        keys are equal here: they are one change.
        """
        lag = [
            sql.SQL("lag({0}) over w = {0}").format(sql.Identifier(name))
            for name in self._changes.sequence
        ]
        text = (
            "{} and (lag({d}) over w <> {d} and not {anew} or"
            " not {d} and not lag({d}) over w and record_image_ne(lag({image}) over w, {image}))"
        )
        return sql.SQL(text).format(
            sql.SQL(" and ").join(lag),
            d=DELETED,
            image=self._image(),
            anew=self._anew("lag({0}) over w", "{0}"),
        )

    def _respelled(self) -> sql.Composable:
        """Whether a change writes a deleted key anew, with the position of its delete."""
        text = "coalesce(p.{} is not null and not s.{} and {} = {} and {}, false)"
        return sql.SQL(text).format(
            sql.Identifier(GONE),
            DELETED,
            row_of(self._changes.sequence, sql.SQL("s")),
            row_of(self._changes.sequence, sql.SQL("p")),
            self._anew("p.{0}", "s.{0}"),
        )

    def _anew(self, old: str, new: str) -> sql.Composable:
        """Whether equal keys are written otherwise; ``old`` and ``new``: SQL of a column {0}."""
        text = _ANEW.format(old=old, new=new)
        tests = [sql.SQL(text).format(sql.Identifier(name)) for name in self._changes.spelled]
        return sql.SQL("({})").format(sql.SQL(" or ").join(tests)) if tests else sql.SQL("false")

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
        assert self._unchanged is not None
        changes, listed = self._changes, sql.Identifier(self._unchanged)
        # What is not written anyway is left as it is by every change.
        partial = sql.SQL("(coalesce(not {} <@ {}::text[], false) and not {})").format(
            listed, list(changes.left_out), DELETED
        )
        may = [*(self._source[name] for name in self._free), *changes.left_out]
        return {
            "partial": partial,
            "exists": sql.SQL(_EXISTS).format(partial=partial),
            "unknown": sql.SQL("not coalesce({} <@ {}::text[], true)").format(listed, may),
            "olds": sql.SQL(', t.{} is not null as "abs:there", (t.*)::{} as "abs:old"').format(
                sql.Identifier(changes.key[0]), changes.plan.table.identifier
            ),
            "filling": self._filling(kept),
        }

    def _filling(self, kept: Sequence[str]) -> sql.Composed:
        """The last ``with`` queries, which give each change the values of what it leaves as it is."""
        key = columns_of(self._changes.key)
        if len(self._free) <= AT_ONCE:
            columns = self._filled(kept, self._free)
            return sql.SQL(_FILL_ALL).format(key=key, lasts=self._lasts(self._free), filled=columns)
        parts = [self._free[at : at + AT_ONCE] for at in range(0, len(self._free), AT_ONCE)]
        names = [sql.Identifier(f"abs:part {number}") for number in range(len(parts))]
        queries: list[sql.Composable] = [sql.SQL(_NUMBERED).format(key=key)]
        for name, part in zip(names, parts, strict=True):
            own = dict.fromkeys([*self._changes.key, self._unchanged or "", *part])
            query = sql.SQL(_FILL_PART).format(
                part=name,
                key=key,
                own=columns_of(list(own)),
                lasts=self._lasts(part),
                filled=self._filled(part, part),
            )
            queries.append(query)
        part_of = {name: f"abs:part {n}" for n, part in enumerate(parts) for name in part}
        filled = sql.SQL(_PUT_TOGETHER).format(
            columns=sql.SQL(", ").join(sql.Identifier(part_of.get(n, "n"), n) for n in kept),
            joins=sql.SQL("").join(
                sql.SQL(' join {} using ("abs:id")').format(name) for name in names
            ),
        )
        return sql.SQL(", ").join([*queries, filled])

    def _lasts(self, names: Sequence[str]) -> sql.Composed:
        """Of each column, the number of the last change that has it."""
        return sql.SQL("").join(
            sql.SQL(_LAST).format(last=sql.Identifier(f"abs:last {n}"), lists=self._lists(name))
            for n, name in enumerate(names)
        )

    def _filled(self, names: Sequence[str], free: Sequence[str]) -> sql.Composed:
        """These columns, in this order, since a table is created of them; ``free`` are filled."""
        lasts = {name: sql.Identifier(f"abs:last {n}") for n, name in enumerate(free)}
        columns: list[sql.Composable] = []
        for name in names:
            column = sql.Identifier(name)
            if name in lasts:
                columns.append(sql.SQL(_FILLED).format(column=column, last=lasts[name]))
            else:
                columns.append(column)
        return sql.SQL(", ").join(columns)


_ANEW = '(({old})::text collate "C") is distinct from (({new})::text collate "C")'
"""The collation of a key can take different texts for equal ones."""


def _same(changes: Changes) -> sql.Composed:
    """Whether a change has the position of what is there, or of the tombstone."""
    there = sql.SQL("p") if changes.side else sql.SQL("t")
    mine = row_of(changes.sequence, sql.SQL("s"))
    return sql.SQL("coalesce({0} = {1}, {0} = {2}, false)").format(
        mine, row_of(changes.sequence, there), row_of(changes.sequence, sql.SQL("p"))
    )


_DIFFERS = """
coalesce((select case when s.{deleted} then not {anew} else record_image_ne({there}, {mine}) end
            from {table} d where {on}), not s.{deleted})"""

_MET = """
with staged as (
    select u.*, {deletes} as "abs:deleted" from ({staged}) u
), met as (
    select s.*, {fresh} as "abs:fresh", {same} as "abs:same",
           {same} and {differs} as "abs:first"{olds}
      from staged s {join_table} left join {positions} p on {on_positions}
), """

_WINNERS = (
    _MET.replace("{olds}", "")
    + """ordered as (
    select {kept}, "abs:deleted", "abs:fresh" and lead(true) over w is null as "abs:apply",
           case when {incomplete} then 'null' when {clash} then 'clash'
                when "abs:first" then {first}
                when not "abs:fresh" and not "abs:same" and {again} then 'again'
                end as "abs:problem"
      from met window w as (partition by {key}, "abs:fresh" order by {order})
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

AT_ONCE = 400
"""So many columns are filled by one query. The server takes 1,664 expressions in a SELECT, and two to
three are needed for each."""

_LAST = """,
           max("abs:n") filter (where not "abs:deleted" and not {lists}) over a as {last}"""

_FILLED = """
case when {last} > coalesce("abs:last deleted", 0) then nth_value({column}, {last}::int) over b
     else ("abs:old").{column} end as {column}"""

_NUMBERING = """numbered as (
    select *, max("abs:n") filter (where "abs:deleted") over a as "abs:last deleted"{lasts}
      from ordered window a as (partition by {key}, "abs:fresh")
)"""

_WINDOW = """
    window b as (partition by {key}, "abs:fresh" order by "abs:n"
                 rows between unbounded preceding and unbounded following)
)"""

_FILL_ALL = f"""{_NUMBERING}, filled as (
    select {{filled}}, "abs:deleted", "abs:problem", "abs:apply" from numbered{_WINDOW}"""

_NUMBERED = _NUMBERING.replace("{lasts}", ', row_number() over () as "abs:id"')

_FILL_PART = f"""{{part}} as (
    select "abs:id", {{filled}}
      from (select "abs:id", "abs:n", "abs:fresh", "abs:last deleted", "abs:old", {{own}}{{lasts}}
              from numbered window a as (partition by {{key}}, "abs:fresh")) q{_WINDOW}"""

_PUT_TOGETHER = """filled as (
    select {columns}, n."abs:deleted", n."abs:problem", n."abs:apply" from numbered n{joins}
)"""

# Changes of a key are numbered in order. A column that the last one leaves as it is has the value of
# the last one that has it, unless a delete came later; else what the table has.
_WINNERS_UNCHANGED = (
    _MET
    + """placed as (
    select *, row_number() over w as "abs:n"
      from met window w as (partition by {key}, "abs:fresh" order by {order})
), ordered as (
    select *, "abs:fresh" and lead(true) over w is null as "abs:apply",
           case when {incomplete} then 'null' when {clash} then 'clash' when {unknown} then 'name'
                when "abs:first" then {first}
                when not "abs:fresh" and not "abs:same" and {again} then 'again'
                when not {partial} then null
                when not "abs:fresh" and not bool_or("abs:same") over (partition by {key}) then 'older'
                when "abs:fresh" and not {exists} then 'missing'
                end as "abs:problem"
      from placed window w as (partition by {key}, "abs:fresh" order by {order}, "abs:n"),
        v as (partition by {key}, "abs:fresh" order by {order}, "abs:n"
              rows between unbounded preceding and 1 preceding)
), {filling}
select {kept}, "abs:deleted", "abs:problem"{more} from filled
"""
)
