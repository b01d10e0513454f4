"""The statements that apply an epoch's rows to its tables, and their order.

The epoch's transaction executes them, and so do the trials that look for dead rows: what is tried is
what is done. Rows are written first, a table after those that it refers to; then rows are deleted, the
other way round. So a child can move before its old parent goes, and what a changed row gives up is
free before another takes it (``releasing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from abs_core.errors import AbsError
from abs_sinks.postgres.apply import changes_sql, changes_winner
from abs_sinks.postgres.apply.rows_sql import inserting, latest_of
from abs_sinks.postgres.apply.target import Part, ResolvedTable
from abs_sinks.postgres.columns.constraints import parents_first
from abs_sinks.postgres.options import PostgresOptions

DEFERRED = sql.SQL("SET CONSTRAINTS ALL DEFERRED")
"""Comes first: what can be deferred is checked for the rows of an epoch together."""

CHECKED = sql.SQL("SET CONSTRAINTS ALL IMMEDIATE")
"""Comes last where the server's errors are wanted before the COMMIT."""


TAKEN = ("23505", "23P01")
"""SQLSTATEs of unique and exclusion constraints."""

_REFERRED = ("23503", "23001")


@dataclass(frozen=True, slots=True)
class Share:
    """What an epoch applies to one table.

    Args:
        rows: the query of the rows.
        winners: the name of a table that is created for the winners of changes, and dropped.
    """

    options: PostgresOptions
    target: ResolvedTable
    rows: sql.Composed
    winners: sql.Identifier


def in_order(parts: Sequence[Part]) -> list[tuple[Part, ResolvedTable]]:
    """The parts with their tables, each table after those that it refers to."""
    found = [(part, part.table.target()) for part in parts]
    tables = [(target.table.oid, target.table.constraints) for _, target in found]
    return [found[number] for number in parents_first(tables)]


def finding_winners(share: Share) -> list[sql.Composed]:
    """Pick the winners; the last statement finds a problem, see ``changes_sql.finding``."""
    changes = share.target.changes
    assert changes is not None
    creating = sql.SQL("create unlogged table {} as {}").format(
        share.winners, changes_winner.winners_of(changes, share.rows)
    )
    return [creating, changes_sql.finding(changes, share.winners)]


def steps(shares: Sequence[Share]) -> Iterator[tuple[int, list[sql.Composed]]]:
    """Statements with the number of their share, in order; winners are picked.

    Of changes the last statement of the first step writes rows, the first of the second deletes some.
    """
    of_changes = {
        number: changes_sql.applying(share.target.changes, share.winners, checked=True)
        for number, share in enumerate(shares)
        if share.target.changes is not None
    }
    for number, share in enumerate(shares):
        yield number, of_changes[number][:-3] if number in of_changes else [_inserting(share)]
    for number in reversed(of_changes):
        yield number, [*of_changes[number][-3:], _dropping(shares[number])]


@contextmanager
def naming_constraint(target: ResolvedTable) -> Iterator[None]:
    """Name the way out where a unique or foreign key refuses what a source could do."""
    try:
        yield
    except AbsError as error:
        cause = error.__cause__
        if target.changes is not None and isinstance(cause, psycopg.errors.IntegrityError):
            name = sql.Identifier(cause.diag.constraint_name or "").as_string()
            if cause.sqlstate in TAKEN:
                error.remedy = (
                    f"if rows of the source exchange values of constraint {name}: drop it and add it "
                    "again as DEFERRABLE. If the two changes of such a move can come in two epochs, "
                    f"drop it here; the source keeps it: ALTER TABLE {target.table.label} DROP "
                    f"CONSTRAINT {name}. Else correct the input, or the row that has the value."
                )
            elif cause.sqlstate in _REFERRED:
                error.remedy = (
                    f"write the tables of constraint {name} in one epoch (abs_spark.epoch); if rows "
                    f"come before those that they refer to: ALTER TABLE {cause.diag.table_name} ALTER "
                    f"CONSTRAINT {name} DEFERRABLE, or drop it here. Else correct the input."
                )
        raise


def _inserting(share: Share) -> sql.Composed:
    target = share.target
    source = latest_of(target.plan, share.rows, target.key, target.orderby)
    keeping = share.options.onconflict == "nothing"
    return inserting(target.plan, source, target.key, keeping=keeping)


def _dropping(share: Share) -> sql.Composed:
    return sql.SQL("drop table {}").format(share.winners)
