"""Finds the staged rows of an epoch that become dead letters, and marks them.

Changes that say nothing (without key, position or operation), that contradict each other, or that name
unknown columns are dead whatever the table holds. Of the others ``dead_search`` finds the dead ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection, sql

from abs_core.errors import RefusedError
from abs_sinks.postgres.apply import changes_sql
from abs_sinks.postgres.apply.rows_sql import union_of
from abs_sinks.postgres.apply.statements import locks
from abs_sinks.postgres.apply.target import Part, ResolvedTable
from abs_sinks.postgres.letter_table import shown
from abs_sinks.postgres.letters.dead_search import Refusal, TooManyDead, find_dead
from abs_sinks.postgres.letters.refused_rows import (
    RefusedRows,
    mark,
    most_dead,
    too_many,
)
from abs_sinks.postgres.letters.trials import CODES, ServerTrials, StagedShare
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.staging import Staging, good

_PLACE = ("abs:table", "abs:ctid")


def mark_refused(
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

    Raises:
        DeadLettersError: more than the limit can ever allow.
        RefusedError: a table without dead letters refuses rows.
        DataError: see ``ServerTrials.checked``.
    """
    staging = Staging(options)
    filled = [(part, target) for part, target in parts if part.staged]
    shares = [
        StagedShare(
            part.table.options,
            target,
            tuple(staging.table(committable.handle) for committable in part.staged),
            part.rows,
        )
        for part, target in filled
    ]
    connection.execute(sql.SQL("; ").join([sql.SQL("begin"), *first]))
    # Their shapes were read before: a column that is added here locks those who look now.
    handle = filled[0][0].staged[0].handle
    refused_rows = refused_of(connection, shares, lambda suffix: staging.winners(handle, suffix))
    connection.execute("rollback")
    with connection.transaction():
        for (part, _), refused in zip(filled, refused_rows, strict=True):
            for committable in part.staged:
                mark(connection, staging.table(committable.handle), refused)


def refused_of(
    connection: Connection[Any],
    shares: Sequence[StagedShare],
    naming: Callable[[str], sql.Identifier],
) -> list[RefusedRows]:
    """The dead rows of each share, in a transaction to be rolled back. Raises as ``mark_refused``.

    Args:
        shares: in the order of applying.
        naming: makes the name of a table from a suffix.
    """
    for lock in locks([share.target for share in shares]):
        # Each in a statement of its own: the next one's snapshot then shows what those who held
        # the lock before have committed.
        connection.execute(lock)
    refused = [_ill_formed(connection, share) for share in shares]
    trials = ServerTrials(connection, shares, naming)
    most = sum(most_dead(share.options, share.rows) for share in shares)
    try:
        dead = trials.checked(find_dead(trials, most))
    except TooManyDead as error:
        keeping = next((s for s in shares if s.options.letters is not None), shares[0])
        message = error.refusal.message
        raise too_many(keeping.options, keeping.target.table.label, most, message) from None
    for row, (number, table, at) in trials.places(dead).items():
        _check_keeps(shares[number], dead[row])
        why = dead[row].code, dead[row].message, dead[row].column
        refused[number].rows.append((table, at, *why))
    return refused


def _ill_formed(connection: Connection[Any], share: StagedShare) -> RefusedRows:
    """The changes with a problem of their own; they are marked."""
    options, target = share.options, share.target
    refused = RefusedRows(target.plan, shown(options, target.plan, target.key), [])
    if options.letters is None:
        return refused
    at = sql.SQL('tableoid::oid as "abs:table", ctid as "abs:ctid", ')
    for problems in target.write.own_problems:
        union = union_of(target.plan, share.tables, good(options), at)
        changes = target.write.each(union, _PLACE)
        query = sql.SQL(_PROBLEMS).format(changes, list(problems))
        more: list[tuple[int, str, str, str, str | None]] = [
            (table, place, CODES[problem], f"{changes_sql.PROBLEMS[problem][0]}.", None)
            for table, place, problem in connection.execute(query)
        ]
        if len(refused.rows) + len(more) > (most := most_dead(options, share.rows)):
            raise too_many(options, target.table.label, most, more[-1][3])
        for table in share.tables:
            mark(connection, table, replace(refused, rows=more))
        refused.rows.extend(more)
    return refused


_PROBLEMS = """
select "abs:table", "abs:ctid"::text, "abs:dead" from ({}) q where "abs:dead" = any({}::text[])
"""


def _check_keeps(share: StagedShare, refusal: Refusal) -> None:
    if share.options.letters is None:
        raise RefusedError(
            f"Table {share.target.table.label} refuses a row: {refusal.message} Nothing of the epoch "
            "is written.",
            remedy="correct the input; or name a table in the option deadletter of that sink, too: "
            "such rows go there, and the query goes on.",
        )
