"""Judges staged rows, for a table and its ``write``: finds those that become dead letters.

Changes are judged until no more are found, since one that is dead leaves its key to the one before it,
and a partial one without its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection, sql

from abs_sinks.postgres import changes_judge, changes_sql
from abs_sinks.postgres.apply import union_of
from abs_sinks.postgres.changes import Changes
from abs_sinks.postgres.deadletters import good, shown
from abs_sinks.postgres.judging import (
    Found,
    judge,
    mark,
    most_dead,
    reason_of,
    refused_rows,
    too_many,
)
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.staging import Staging
from abs_sinks.postgres.target import Part, ResolvedTable, noticing_changes

CODES = {
    "null": "null",
    changes_judge.CLASH: "contradiction",
    "older": "older-than-row",
    "missing": "row-missing",
    "name": "column-unknown",
}
"""Codes of dead letters by ``abs:problem``; the texts are durable."""

_PLACE = ("abs:table", "abs:ctid")


def judge_staged(
    connection: Connection[Any],
    options: PostgresOptions,
    parts: Sequence[tuple[Part, ResolvedTable]],
    first: Sequence[sql.Composable],
) -> None:
    """Mark the staged rows that the tables refuse, as dead letters; ``Staging.counts`` tells how many.

    The tables are filled as by the epoch's transaction, which is rolled back; then the marks are
    committed. No decision names these handles yet, so a crash leaves them to the sweep.

    Args:
        parts: in the order of applying.
        first: what adds columns and empties replaced tables.
    """
    staging = Staging(options)
    # With the tables in order, a deferred constraint can be judged row by row.
    begin = [sql.SQL("begin"), *first, sql.SQL("set constraints all immediate")]
    connection.execute(sql.SQL("; ").join(begin))
    # Their shapes were read before: a column that is added here locks those who look now.
    found = [(part, _judge(connection, staging, part, target)) for part, target in parts]
    connection.execute("rollback")
    with connection.transaction():
        for part, refused in found:
            for committable in part.staged:
                mark(connection, staging.table(committable.handle), refused)


def _judge(
    connection: Connection[Any], staging: Staging, part: Part, target: ResolvedTable
) -> Found:
    options = part.table.options
    if not part.staged:
        return Found(target.plan, shown(options, target.plan, target.key), [])
    tables = [staging.table(committable.handle) for committable in part.staged]
    judged = staging.judged(part.staged[0].handle)
    return judge_any(connection, options, target, tables, judged, part.rows)


def judge_any(
    connection: Connection[Any],
    options: PostgresOptions,
    target: ResolvedTable,
    tables: Sequence[sql.Identifier],
    judged: sql.Identifier,
    rows: int,
) -> Found:
    """``judge``, also for changes."""
    given = (connection, options, target, tables, judged, rows)
    return judge(*given) if target.changes is None else _judge_changes(*given, target.changes)


def _judge_changes(
    connection: Connection[Any],
    options: PostgresOptions,
    target: ResolvedTable,
    tables: Sequence[sql.Identifier],
    judged: sql.Identifier,
    rows: int,
    changes: Changes,
) -> Found:
    """See ``judge``; the staged rows that were found are marked."""
    plan, most = target.plan, most_dead(options, rows)
    found = Found(plan, shown(options, plan, target.key), [])
    connection.execute(changes_sql.locking(changes))
    while True:
        connection.execute("savepoint abs_changes")
        with noticing_changes(options, plan):
            more = _round(connection, options, target, tables, judged, rows, changes)
        if not more or options.letters is None:
            return found
        connection.execute("rollback to savepoint abs_changes; release savepoint abs_changes")
        found.rows.extend(more)
        if len(found.rows) > most:
            raise too_many(options, plan.table.label, most, more[-1][3])
        for table in tables:
            mark(connection, table, replace(found, rows=more))


def _round(
    connection: Connection[Any],
    options: PostgresOptions,
    target: ResolvedTable,
    tables: Sequence[sql.Identifier],
    judged: sql.Identifier,
    rows: int,
    changes: Changes,
) -> list[tuple[int, str, str, str, str | None]]:
    """Changes with a problem; if there are none, those that the server refuses to apply."""
    at = sql.SQL('tableoid::oid as "abs:table", ctid as "abs:ctid", ')
    union = union_of(target.plan, tables, good(options), at)
    each = changes_judge.judging_each(changes, union, _PLACE)
    connection.execute(sql.SQL(_NUMBERED).format(judged, each))
    names = '"abs:table", "abs:ctid"::text'
    query = f'select {names}, "abs:dead" from {{}} where "abs:dead" <> {{}}'
    wrong = connection.execute(sql.SQL(query).format(judged, changes_judge.FIRST)).fetchall()
    if wrong:
        return [
            (table, at, CODES[problem], f"{changes_sql.PROBLEMS[problem][0]}.", None)
            for table, at, problem in wrong
        ]
    count = 'select count(*) from {} where "abs:n" is not null'
    row = connection.execute(sql.SQL(count).format(judged)).fetchone()
    numbered = 0 if row is None else int(row[0])

    def attempt(first: int, end: int) -> None:
        some = sql.SQL('(select * from {} where "abs:n" >= {} and "abs:n" < {})').format(
            judged, first, end
        )
        for statement in changes_sql.applying(changes, some, checked=True)[:2]:
            connection.execute(statement)

    label = target.table.label
    refused = refused_rows(connection, numbered, attempt, options, label, rows)
    where = sql.SQL(f'select {names} from {{}} where "abs:n" = {{}}')
    places = {n: connection.execute(where.format(judged, n)).fetchone() for n in refused}
    return [(*(places[n] or ()), *reason_of(error)) for n, error in refused.items()]


# Deletes are numbered first: they make room for others.
_NUMBERED = """
create unlogged table {0} as
select case when "abs:apply" and "abs:dead" is null
            then row_number() over (partition by "abs:apply" and "abs:dead" is null
                                    order by "abs:deleted" desc) - 1 end as "abs:n", q.*
  from ({1}) q
"""
