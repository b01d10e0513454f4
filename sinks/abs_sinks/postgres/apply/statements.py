"""The statements that apply an epoch's rows to its tables, and their order.

The epoch's transaction executes them, and so do the trials that look for dead rows: what is tried is
what is done. Rows are written first, a table after those that it refers to; then rows are deleted, the
other way round. So a child can move before its old parent goes, and what a changed row gives up is
free before another takes it (``releasing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from psycopg import sql

from abs_clients.postgres.errors import by_data
from abs_core.errors import AbsError, SchemaError
from abs_sinks.checking import of_row, offering
from abs_sinks.postgres.apply.message import Result
from abs_sinks.postgres.apply.target import Part, ResolvedTable
from abs_sinks.postgres.columns.constraints import parents_first
from abs_sinks.postgres.options import PostgresOptions

DEFERRED = sql.SQL("SET CONSTRAINTS ALL DEFERRED")
"""Comes first: what can be deferred is checked for the rows of an epoch together."""

CHECKED = sql.SQL("SET CONSTRAINTS ALL IMMEDIATE")
"""Comes last where the server's errors are wanted before the COMMIT."""


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
    resolved = [(part, part.table.target()) for part in parts]
    tables = [(target.table.oid, target.table.constraints) for _, target in resolved]
    return [resolved[number] for number in parents_first(tables)]


def locks(targets: Sequence[ResolvedTable]) -> list[sql.Composed]:
    """What makes those take turns who write to the same tables; in one order for all."""
    # Two jobs that lock the same tables in different orders would wait for each other.
    ordered = sorted(targets, key=lambda target: target.table.oid)
    return [lock for target in ordered for lock in target.write.lock()]


class Picking(NamedTuple):
    """Picks the rows to apply, and finds what is wrong with them."""

    create: sql.Composed
    find: sql.Composed


def picking(share: Share) -> Picking | None:
    """The statements that pick rows before they are applied; None: all are applied."""
    write = share.target.write
    query = write.picking(share.rows)
    if query is None:
        return None
    create = sql.SQL("create unlogged table {} as {}").format(share.winners, query)
    return Picking(create, write.problem(share.winners))


class Step(NamedTuple):
    """Statements for one table, of which one counts.

    Args:
        number: of the share.
        deletes: whether ``counted`` deletes rows; else it writes them.
    """

    number: int
    deletes: bool
    first: Sequence[sql.Composed]
    counted: sql.Composed
    last: Sequence[sql.Composed] = ()

    @property
    def statements(self) -> list[sql.Composed]:
        return [*self.first, self.counted, *self.last]

    def count(self, results: Sequence[Result]) -> int:
        """How many rows the statement has changed that counts."""
        return results[len(self.first)].affected


def steps(shares: Sequence[Share]) -> Iterator[Step]:
    """Applies the shares, whose rows are picked: all rows are written before any is deleted."""
    applied = [share.target.write.apply(share.rows, share.winners) for share in shares]
    for number, done in enumerate(applied):
        yield Step(number, False, done.first, done.written)
    for number in reversed(range(len(shares))):
        done = applied[number]
        if done.deleted is not None:
            drop = sql.SQL("drop table {}").format(shares[number].winners)
            yield Step(number, True, [], done.deleted, [*done.last, drop])


def _refused(error: AbsError) -> bool:
    # A SchemaError is of every row, though the server told it of one.
    of_data = of_row(error) or by_data(error.__cause__)
    return of_data and not isinstance(error, SchemaError)


def naming_option(options: PostgresOptions) -> AbstractContextManager[None]:
    """Name the option ``deadletter`` in errors of rows, where it names no table."""
    return offering(options.letters, "a table", _refused)


@contextmanager
def naming_constraint(target: ResolvedTable) -> Iterator[None]:
    """Name the way out where a unique or foreign key refuses what a source could do."""
    try:
        yield
    except AbsError as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.errors.IntegrityError):
            error.remedy = target.write.remedy(cause) or error.remedy
        raise
