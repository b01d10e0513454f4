"""Whether a source's positions begin again lower: it was restored, or is another one.

Its changes are older than their rows then, and would be left out. Changes that come late, or again,
are older, too; only the time at which the source committed them tells the two apart: of an intact
source a change that is older than its row was committed before it. So the latest time of all changes
that were applied is kept beside the positions, and changed in the transaction that applies them.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql

from abs_core.errors import SourceWentBackError
from abs_sinks.postgres.apply.changes import Changes

AGAIN = "again"
"""The problem of a change that is older than its row, and was committed later than all applied ones."""

_CREATE = """
create table if not exists {latest} (latest int8 not null);
insert into {latest}
select case when {fresh} then 0 else (extract(epoch from now()) * 1000)::int8 end
 where not exists (select from {latest})
"""

# It only grows: a change that comes late has an older time, and says nothing of the source.
_NOTE = """
update {latest} set latest = m.latest
  from (select max(j.{committed}) as latest from {winners} j where {fine}) m
 where m.latest > {latest}.latest
"""


def latest_name(positions: str) -> str:
    """The table of the latest time, by the name of the positions table."""
    return positions.replace("positions_", "committed_", 1)


def _latest(changes: Changes) -> sql.Identifier:
    schema, name = changes.place
    return sql.Identifier(schema, latest_name(name))


def ensure(connection: Connection[Any], changes: Changes, *, fresh: bool) -> None:
    """Create the table of the latest time.

    Args:
        fresh: no row has a position yet. Else the times of what was applied are not known: none of
            them is later than now.
    """
    connection.execute(sql.SQL(_CREATE).format(latest=_latest(changes), fresh=fresh))


def is_again(changes: Changes) -> sql.Composable:
    """Whether a change was committed later than all that were applied."""
    if changes.committed is None:
        return sql.SQL("false")
    return sql.SQL("coalesce({} > (select latest from {}), false)").format(
        sql.Identifier(changes.committed), _latest(changes)
    )


def noting(changes: Changes, winners: sql.Composable, fine: sql.Composable) -> list[sql.Composed]:
    """The statement that keeps the latest time of the changes that are applied."""
    if changes.committed is None:
        return []
    column = sql.Identifier(changes.committed)
    latest = _latest(changes)
    return [sql.SQL(_NOTE).format(latest=latest, committed=column, winners=winners, fine=fine)]


def error_of(changes: Changes, which: str) -> SourceWentBackError:
    """The error for such changes.

    Args:
        which: names the first of them, by key and position.
    """
    table = changes.plan.table.label
    forget = (
        f"DROP TABLE {changes.positions.as_string()}"
        if changes.side
        else f"UPDATE {table} SET "
        + ", ".join(f"{sql.Identifier(name).as_string()} = NULL" for name in changes.sequence)
        + f"; DROP TABLE {changes.positions.as_string()}"
    )
    return SourceWentBackError(
        "Changes that the source committed later than all that were applied have a lower position "
        f"than their rows: {which}. The source was restored from a backup, failed over with loss, or "
        "is another server, whose positions begin again lower. Such changes would be left out; nothing "
        "of the epoch is applied.",
        remedy="begin the copy again from nothing, with a new snapshot: `abs job reset JOB`, an empty "
        "table and a new checkpoint. Or keep the rows and take every change that comes next: "
        f"{forget}; what the source has lost stays in the copy then. Or, if these changes are to be "
        'left out, set committedat="" as long as they come.',
    )
