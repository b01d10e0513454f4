"""The statements that apply changes, once ``changes_winner`` has picked the last of each key.

All run in one transaction, after a lock that makes those who apply changes to one table take turns. It
is taken in a statement of its own: the snapshot of the next statement then shows what the others did.
Keys and positions are compared by the server only.

The winners go to a table, which these statements read. One with a problem is not
applied, and nothing is beside one that stops the epoch: the problems are a mask of bad rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection, sql

from abs_clients.postgres.name import columns_of
from abs_core.effort import note_changed
from abs_core.errors import DataError
from abs_core.model import Finding, HandleName
from abs_core.sinkmap import number_of
from abs_sinks.postgres.apply import changes_winner as winner
from abs_sinks.postgres.apply import committed
from abs_sinks.postgres.apply.changes import GONE, Changes, equal, later, newer
from abs_sinks.postgres.apply.releasing import frees, releasing
from abs_sinks.postgres.apply.rows_sql import inserting

log = logging.getLogger(__name__)

applied = logging.getLogger("abs_sinks.changes")
"""A line for each table and epoch: how many changes came, and how many rows they changed."""

_PROBLEM = sql.Identifier("abs:problem")

_LOCK = """
select pg_advisory_xact_lock(1633842994, (to_regclass({})::oid::int8 - 2147483648)::int4),
       set_config('work_mem',
                  greatest(pg_size_bytes(current_setting('work_mem')) / 1024, {}) || 'kB', true)
"""
"""The first number is "abs2" in ASCII."""

WORK_MEM_KB = 64 * 1024
"""For the sort and the joins of an epoch's changes. One session at a time has it for a table."""


def locking(changes: Changes) -> sql.Composed:
    """As ``lock_of``."""
    return lock_of(changes.plan.table.label)


def lock_of(label: str) -> sql.Composed:
    """Wait until no one else applies changes to the table; until the transaction ends."""
    return sql.SQL(_LOCK).format(label, WORK_MEM_KB)


class Applying(NamedTuple):
    """Notes times (``committed``), frees unique values, upserts and deletes rows, keeps positions, and
    drops old tombstones."""

    times: Sequence[sql.Composed]
    releases: Sequence[sql.Composed]
    upsert: sql.Composed
    delete: sql.Composed
    keep: sql.Composed
    expire: sql.Composed

    def all(self) -> list[sql.Composed]:
        """The statements in their order."""
        return [*self.times, *self.releases, self.upsert, self.delete, self.keep, self.expire]


def applying(changes: Changes, winners: sql.Composable, *, checked: bool = False) -> Applying:
    """The statements that apply changes.

    Rows are deleted after others are written: a row that referred to one of them may have moved.

    Args:
        winners: a table, or a query in parentheses.
        checked: nothing in it stops the epoch; else the statements look for that.
    """
    fine = _fine(winners, checked=checked)
    q_fine = sql.SQL("q.{} is null").format(_PROBLEM)
    return Applying(
        committed.noting(changes, winners, fine),
        releasing(changes, winners, fine, q_fine),
        _upserting(changes, winners, fine),
        _deleting(changes, winners, fine),
        _keeping(changes, winners, fine),
        _expiring(changes),
    )


def _deleting(changes: Changes, winners: sql.Composable, fine: sql.Composable) -> sql.Composed:
    # Without a delete the table is not even read.
    text = "delete from {} t using {winners} j where {} and j.{deleted} and {} and {}"
    return sql.SQL(f"{text} and exists (select from {{winners}} q where q.{{deleted}})").format(
        changes.plan.table.identifier,
        equal(changes.key, "j", "t"),
        fine,
        newer(changes, sql.SQL("j"), sql.SQL("t")),
        winners=winners,
        deleted=winner.DELETED,
    )


def _upserting(changes: Changes, winners: sql.Composable, fine: sql.Composable) -> sql.Composed:
    source = sql.SQL("select {} from {} j where not {} and {}").format(
        columns_of(changes.written), winners, winner.DELETED, fine
    )
    if frees(changes):
        # As in the source: what could not be freed before is given up by the row that changed first.
        ordering = columns_of(changes.sequence)
        source = sql.SQL("{} order by {}").format(source, ordering)
    table = changes.plan.table.identifier
    guard = newer(changes, sql.SQL("excluded"), table)
    upsert = inserting(changes.plan, source, changes.key, changes.written)
    return sql.SQL("{} where {}").format(upsert, guard)


def _keeping(changes: Changes, winners: sql.Composable, fine: sql.Composable) -> sql.Composed:
    """Upsert tombstones; with ``positions=side`` the position of every row."""
    named = [*changes.key, *changes.sequence]
    which = sql.SQL("true") if changes.side else sql.SQL("j.{}").format(winner.DELETED)
    columns, gone = columns_of(named), sql.Identifier(GONE)
    return sql.SQL(_KEEP).format(
        positions=changes.positions,
        columns=columns,
        gone=gone,
        deleted=winner.DELETED,
        winners=winners,
        which=which,
        fine=fine,
        key=columns_of(changes.key),
        set=sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name))
            for name in (*changes.spelled, *changes.sequence, GONE)
        ),
        newer=later(changes.sequence, sql.SQL("excluded"), sql.SQL("p")),
        # A key that is written anew has the position of its delete.
        anew=sql.SQL(
            "p.{0} is not null and excluded.{0} is null" if changes.spelled else "false"
        ).format(gone),
    )


_KEEP = """
insert into {positions} as p ({columns}, {gone})
select {columns}, case when {deleted} then now() end from {winners} j where {which} and {fine}
on conflict ({key}) do update set {set} where {newer} or {anew}
"""


def error_of(changes: Changes, row: tuple[Any, ...] | None) -> DataError | None:
    """The error for the result of ``finding``, if it stops the epoch; else it is logged."""
    if row is None:
        return None
    problem, key, position, count = row
    which = (
        f"{count} of the changes of table {changes.plan.table.label}, the first with key "
        f"({columns_of(changes.key).as_string()}) = ({str(key)[:200]}) and position "
        f"({columns_of(changes.sequence).as_string()}) = ({str(position)[:200]})"
    )
    if problem == winner.FIRST:
        log.warning(
            "changes have the position of another change that was applied before, which stays: %s",
            which,
        )
        return None
    if problem == committed.AGAIN:
        return committed.error_of(changes, which)
    sentence, remedy = PROBLEMS[problem]
    return DataError(
        f"{sentence}: {which}. Nothing of the epoch is applied.",
        remedy=f"{remedy.rstrip('.')}; or name a table in the option deadletter: such changes go "
        "there, and the query goes on.",
    )


PROBLEMS = {
    "null": (
        "The key, the position or the operation of a change is NULL",
        "fill or filter such rows in Spark.",
    ),
    "clash": (
        "Two different changes of one key have the same position",
        (
            "add a column to sequenceby that tells them apart; or keep one of them in Spark. If the "
            "source wrote a key anew in another form (1.0 as 1.00), read the key as text."
        ),
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


def tell(
    connection: Connection[Any],
    changes: Changes,
    handle: HandleName,
    came: int,
    deleted: int,
    written: int,
) -> None:
    """Log what the changes of an epoch do to the table, and note it for observers.

    In the transaction that applies them.

    Args:
        handle: one of those that staged them.
        came: number of changes.
    """
    note_changed(handle.job, handle.epoch, number_of(handle), deleted + written)
    table = changes.plan.table.label
    if came and not (deleted or written) and are_stale(connection, changes):
        problem = stale(changes)
        log.warning("%d changes do nothing: %s %s", came, problem.what, problem.remedy)
    applied.info(
        "table %s: %d changes; %d rows written, %d deleted; the other changes are not newer than what "
        "was applied, or a later one of their key came with them",
        table,
        came,
        written,
        deleted,
    )


def are_stale(connection: Connection[Any], changes: Changes) -> bool:
    """Whether the table has no row, although its side table has positions of rows."""
    if not changes.side:
        return False
    query = sql.SQL(_STALE).format(
        table=changes.plan.table.identifier,
        positions=changes.positions,
        gone=sql.Identifier(GONE),
    )
    return connection.execute(query).fetchone() == (True,)


_STALE = """
select not exists (select from {table})
   and exists (select from {positions} where {gone} is null)
"""


def stale(changes: Changes) -> Finding:
    """What is wrong about positions of rows that are gone, and what to do."""
    table, positions = changes.plan.table.label, changes.positions.as_string()
    sentence = (
        f"Table {table} is empty, but {positions} has positions of its rows: changes that are not "
        "newer than these are taken for applied ones."
    )
    remedy = (
        "to begin again from nothing: `abs job reset JOB`, which drops these positions, and delete the "
        f"checkpoint; to go on with the changes that come next only: DROP TABLE {positions}."
    )
    return Finding.error(sentence, remedy)


def finding(changes: Changes, winners: sql.Identifier) -> sql.Composed:
    """The query of a problem, its first key and position, and its number; no row if there is none.

    Problems that stop the epoch come first.
    """
    return sql.SQL(_FIND).format(
        problem=_PROBLEM,
        key=columns_of(changes.key),
        position=columns_of(changes.sequence),
        winners=winners,
        first=winner.FIRST,
    )


_FIND = """
select {problem}, concat_ws(', ', {key}), concat_ws(', ', {position}),
       count(*) over (partition by {problem})
  from {winners} where {problem} is not null
 order by {problem} = {first}, {problem}, {position}, {key} limit 1
"""


def _fine(winners: sql.Composable, *, checked: bool) -> sql.Composed:
    """Whether the row of ``j`` is applied: never beside one that stops the epoch."""
    alone = sql.SQL("j.{} is null").format(_PROBLEM)
    if checked:
        return alone
    text = "{} and not exists (select from {} q where q.{} <> {})"
    return sql.SQL(text).format(alone, winners, _PROBLEM, winner.FIRST)


def _expiring(changes: Changes) -> sql.Composed:
    """Delete tombstones of their age, by the server's clock."""
    return sql.SQL("delete from {} where {} < now() - make_interval(secs => {})").format(
        changes.positions, sql.Identifier(GONE), changes.tombstones
    )
