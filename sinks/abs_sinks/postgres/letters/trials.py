"""Tries rows of an epoch by the statements that apply it, under savepoints of one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection, sql

from abs_clients.postgres.errors import by_data
from abs_clients.postgres.name import columns_of
from abs_core.errors import DataError, SourceWentBackError
from abs_sinks.postgres.apply import changes_sql, changes_winner
from abs_sinks.postgres.apply.message import Message, Result
from abs_sinks.postgres.apply.rows_sql import duplicate_key
from abs_sinks.postgres.apply.statements import (
    CHECKED,
    DEFERRED,
    Share,
    picking,
    steps,
)
from abs_sinks.postgres.apply.target import ResolvedTable, noticing_changes
from abs_sinks.postgres.apply.write import TAKEN
from abs_sinks.postgres.columns.constraints import Constraints
from abs_sinks.postgres.letters.dead_search import Kind, Refusal
from abs_sinks.postgres.letters.links import Links
from abs_sinks.postgres.letters.refused_rows import reason_of
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.staging import good

CODES = {
    "null": "null",
    changes_winner.CLASH: "contradiction",
    "older": "older-than-row",
    "missing": "row-missing",
    "name": "column-unknown",
}
"""Codes of dead letters by ``abs:problem``; the texts are durable."""

_OWN_CLASSES = ("22", "44")
_OWN_CODES = ("23502", "23514")
"""SQLSTATEs by which a row is refused for its own values: NOT NULL and CHECK."""


@dataclass(frozen=True, slots=True)
class StagedShare:
    """Staged rows of one table.

    Args:
        tables: that hold the rows, with the columns of dead letters.
        rows: of which ``deadlettermax`` is a share.
    """

    options: PostgresOptions
    target: ResolvedTable
    tables: tuple[sql.Identifier, ...]
    rows: int


class ServerTrials:
    """See ``dead_search.Trials``; in a transaction that is to be rolled back.

    The order in which rows live: by position (``sequenceby``, or ``orderby``), then by table, key and a
    digest of the row. Positions of several tables are compared where all have the same types.

    Args:
        shares: in the order of applying.
        naming: makes the name of a table from a suffix.
    """

    def __init__(
        self,
        connection: Connection[Any],
        shares: Sequence[StagedShare],
        naming: Callable[[str], sql.Identifier],
    ) -> None:
        self._connection = connection
        self._shares = shares
        self._naming = naming
        self._message = Message()
        # No temporary table: a transaction that has used one cannot be prepared.
        order = naming("_o")
        connection.execute(_ordered(shares, order))
        for number, share in enumerate(shares):
            connection.execute(_numbered(share, order, self._rows(number)))
        self.count, self._of = self._numbers(order)
        rows = [(share.target, self._rows(n)) for n, share in enumerate(shares)]
        self._links = Links(connection, naming("_l"), rows)
        self.waits = any(_waits(share.target.table.constraints, shares) for share in shares)
        connection.execute("savepoint abs_start")

    def start(self, out: Collection[int]) -> Refusal | None:
        self.begin()
        gone = sorted(out)
        condition = sql.SQL('not "abs:n" = any({}::bigint[])').format(gone) if gone else None
        refusal = self._apply(range(len(self._shares)), condition)
        if refusal is None:
            self._connection.execute("release savepoint abs_try")
        return refusal

    def begin(self) -> None:
        self._connection.execute("rollback to savepoint abs_start")

    def add(self, rows: Sequence[int]) -> Refusal | None:
        refusal = self._some(rows)
        if refusal is None:
            self._connection.execute("release savepoint abs_try")
        return refusal

    def probe(self, rows: Sequence[int]) -> Refusal | None:
        refusal = self._some(rows)
        if refusal is None:
            self._connection.execute(_BACK)
        return refusal

    def linked(self, rows: Collection[int], among: Collection[int] | None, most: int) -> set[int]:
        return self._links.linked(sorted(rows), None if among is None else sorted(among), most)

    def shares_key(self, rows: Collection[int]) -> set[int]:
        return {row for row in rows if self._links.linked([row], None, 1, "k")}

    def checked(self, dead: dict[int, Refusal]) -> dict[int, Refusal]:
        """The same rows.

        Raises:
            DataError: a change is refused for a value that a row has which no change of the epoch
                touches: the two halves of a move can lie in two epochs, and none of them is dead.
        """
        for row, refusal in dead.items():
            share = self._shares[self._of[row]]
            if refusal.code not in TAKEN or not share.target.write.picks:
                continue
            if not self._links.linked([row], None, 1, "u"):
                raise DataError(
                    f"A change of table {share.target.table.label} takes a value that another row "
                    f"has, and no change of this epoch frees it: {refusal.message} Nothing of the "
                    "epoch is applied.",
                    remedy="a source moves such a value by two changes, which can come in two epochs: "
                    "drop the constraint here (the source keeps it), or correct the row that has the "
                    "value, and restart the query.",
                )
        return dead

    def places(self, rows: Collection[int]) -> dict[int, tuple[int, int, str]]:
        """The share of each of these rows, and table and ctid of where it is staged, in that order."""
        query = sql.SQL(_PLACES).format(self._naming("_o"), sorted(rows))
        places = self._connection.execute(query).fetchall()
        return {n: (self._of[n], table, at) for n, table, at in places}

    def _rows(self, number: int) -> sql.Identifier:
        return self._naming(f"_{number}")

    def _numbers(self, order: sql.Identifier) -> tuple[int, Sequence[int]]:
        """How many rows there are, and the share of each."""
        shares = self._connection.execute(sql.SQL("select p from {} order by n").format(order))
        of = (
            bytes(row[0] for row in shares)
            if len(self._shares) < 256
            else tuple(r[0] for r in shares)
        )
        return len(of), of

    def _some(self, rows: Sequence[int]) -> Refusal | None:
        first, last = rows[0], rows[-1]
        if last - first + 1 == len(rows):
            condition = sql.SQL('"abs:n" between {} and {}').format(first, last)
        else:
            condition = sql.SQL('"abs:n" = any({}::bigint[])').format(list(rows))
        return self._apply(sorted({self._of[row] for row in rows}), condition)

    def _apply(self, numbers: Sequence[int], condition: sql.Composed | None) -> Refusal | None:
        """Apply rows of these shares; if they are accepted, the savepoint ``abs_try`` is open."""
        shares = [self._share(number, condition) for number in numbers]
        self._message = Message(sql.SQL("savepoint abs_try"), DEFERRED)
        share = shares[0]
        try:
            for share in shares:
                if refusal := self._problem(share):
                    self._connection.execute(_BACK)
                    return refusal
            *others, last = steps(shares)
            for step in others:
                share = shares[step.number]
                self._run(share, step.statements)
            share = shares[last.number]
            self._run(share, [*last.statements, CHECKED])
        except psycopg.Error as error:
            if self._connection.closed or not by_data(error):
                raise
            self._connection.execute(_BACK)
            return _refusal(error, share)
        return None

    def _share(self, number: int, condition: sql.Composed | None) -> Share:
        share = self._shares[number]
        rows = sql.SQL("select {} from {}").format(
            columns_of(share.target.plan.names), self._rows(number)
        )
        if condition is not None:
            rows = sql.SQL("{} where {}").format(rows, condition)
        return Share(share.options, share.target, rows, self._naming(f"_{number}j"))

    def _problem(self, share: Share) -> Refusal | None:
        picks = picking(share)
        if picks is None:
            return None
        _, problem = self._run(share, picks)
        row = problem.row
        if row is None or row[0] == changes_winner.FIRST:
            return None
        error = share.target.write.error_of(row)
        if isinstance(error, SourceWentBackError):
            raise error  # none of its rows is dead
        kind = Kind.LATE if row[0] == "older" else Kind.OTHER
        return Refusal(CODES[row[0]], f"{changes_sql.PROBLEMS[row[0]][0]}.", None, kind)

    def _run(self, share: Share, statements: Sequence[sql.Composable]) -> list[Result]:
        plan, message = share.target.plan, self._message
        with noticing_changes(share.options, plan):
            try:
                cursor = self._connection.execute(message.text(statements))
                return message.results(cursor, statements)
            except psycopg.errors.CardinalityViolation as error:
                self._connection.execute(_BACK)
                raise duplicate_key(self._connection, plan, share.target.key, share.rows) from error


_BACK = "rollback to savepoint abs_try; release savepoint abs_try"


def _refusal(error: psycopg.Error, share: Share) -> Refusal:
    code, message, column = reason_of(error)
    kind = Kind.OTHER
    if share.target.write.orderby:
        kind = Kind.LATE  # another row of its key may be in its place
    elif code[:2] in _OWN_CLASSES or code in _OWN_CODES:
        kind = Kind.OWN
    return Refusal(code, message, column, kind)


def _waits(constraints: Constraints, shares: Sequence[StagedShare]) -> bool:
    oids = {share.target.table.oid for share in shares}
    return any(key.table in oids and key.of in oids for key in constraints.foreign)


_PLACES = "select n, t::oid, c::text from {} where n = any({}::bigint[]) order by p, t, c"

_ORDER = """
create unlogged table {} as
select row_number() over (order by {}p, r) - 1 as n, p, t, c from ({}) q
"""

_RANKED = """
select {number} as p, s."abs:t" as t, s."abs:c" as c{positions},
       row_number() over (order by {order}) as r
  from ({staged}) s
"""

_STAGED = 'select tableoid as "abs:t", ctid as "abs:c", {names} from {table} where {good}'

_NUMBERED = """
create unlogged table {rows} as select o.n as "abs:n", s.* from ({staged}) s
  join {order} o on o.t = s."abs:t" and o.c = s."abs:c";
create index on {rows} ("abs:n")
"""


def _ordered(shares: Sequence[StagedShare], order: sql.Identifier) -> sql.Composed:
    """Number the rows of all shares."""
    positions = [_position(share) for share in shares]
    comparable = bool(positions[0]) and all(position == positions[0] for position in positions)
    ranked = []
    for number, share in enumerate(shares):
        target, write = share.target, share.target.write
        named = write.position or write.orderby
        nulls = " nulls first" if write.orderby else ""
        ordering = [sql.SQL("s.{}" + nulls).format(sql.Identifier(name)) for name in named]
        ordering += [sql.SQL("s.{}").format(sql.Identifier(name)) for name in target.key]
        columns = [sql.SQL("s.{}").format(sql.Identifier(name)) for name in target.plan.names]
        digest = sql.SQL("md5(row({})::text)").format(sql.SQL(", ").join(columns))
        own = [
            sql.SQL(", s.{} as {}").format(sql.Identifier(name), sql.Identifier(f"s{at}"))
            for at, name in enumerate(named if comparable else ())
        ]
        ranked.append(
            sql.SQL(_RANKED).format(
                number=number,
                positions=sql.SQL("").join(own),
                order=sql.SQL(", ").join([*ordering, digest]),
                staged=_staged(share),
            )
        )
    first = [sql.SQL("s{}, ").format(n) for n in range(len(positions[0]) if comparable else 0)]
    return sql.SQL(_ORDER).format(
        order, sql.SQL("").join(first), sql.SQL(" union all ").join(ranked)
    )


def _position(share: StagedShare) -> list[str]:
    """The types of the position, where there is one."""
    own = {planned.column.name: planned.column for planned in share.target.plan.columns}
    columns = [own[name] for name in share.target.write.position]
    return [
        f"{column.type.domain_of or column.type.label} {column.collation}" for column in columns
    ]


def _staged(share: StagedShare) -> sql.Composed:
    names = columns_of(share.target.plan.names)
    condition = good(share.options) or sql.SQL("true")
    return sql.SQL(" union all ").join(
        sql.SQL(_STAGED).format(names=names, table=table, good=condition) for table in share.tables
    )


def _numbered(share: StagedShare, order: sql.Identifier, rows: sql.Identifier) -> sql.Composed:
    return sql.SQL(_NUMBERED).format(rows=rows, staged=_staged(share), order=order)
