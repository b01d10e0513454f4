"""Frees unique values that changed rows give up, before other rows of the epoch take them.

The server checks a unique constraint that is not DEFERRABLE row by row, so a value could not move to
another row, nor two rows swap theirs. A row that gives a value up loses it before: the column is set to
NULL, or, where none can be NULL, the row is deleted and written again. It is deleted only where nothing
else hangs on it: no foreign key, no trigger, and no column that the input lacks.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from abs_sinks.postgres.apply import changes_winner as winner
from abs_sinks.postgres.apply.changes import Changes, equal, newer
from abs_sinks.postgres.columns.constraints import Unique

_SETTING = "update {table} t set {column} = null where (t.tableoid, t.ctid) in ({rows})"
_DELETING = "delete from {table} t where (t.tableoid, t.ctid) in ({rows})"

_ROWS = """
select h.tableoid, h.ctid
  from {winners} q join {table} h on {same_value}
  join {winners} j on {own_key} and {fine} and {newer}
 where not q.{deleted} and {q_fine} and not ({same_key}) and ({which})
"""


def releasing(
    changes: Changes, winners: sql.Composable, fine: sql.Composable, q_fine: sql.Composable
) -> list[sql.Composed]:
    """A statement for each unique constraint besides the key that needs one.

    Args:
        fine: whether the row of ``j`` is applied; ``q_fine``: that of ``q``.
    """
    return [_releasing(changes, constraint, winners, fine, q_fine) for constraint in frees(changes)]


def frees(changes: Changes) -> list[Unique]:
    """The unique constraints besides the key that the server checks row by row."""
    return [
        constraint
        for constraint in changes.plan.table.constraints.besides(changes.key)
        if constraint.columns and set(constraint.columns) <= set(changes.written)
        if not (constraint.deferrable or constraint.excludes)
    ]


def _releasing(
    changes: Changes,
    unique: Unique,
    winners: sql.Composable,
    fine: sql.Composable,
    q_fine: sql.Composable,
) -> sql.Composed:
    column = _can_be_null(changes, unique)
    changed = sql.SQL("row({}) is distinct from row({})").format(
        _columns("j", unique.columns), _columns("h", unique.columns)
    )
    which = sql.SQL("j.{}").format(winner.DELETED)
    if column is not None or _may_be_written_again(changes):
        which = sql.SQL("{} or {}").format(which, changed)
    same = "{0}.{2} is not distinct from {1}.{2}" if unique.nulls_equal else "{0}.{2} = {1}.{2}"
    rows = sql.SQL(_ROWS).format(
        winners=winners,
        table=changes.plan.table.identifier,
        same_value=sql.SQL(" and ").join(
            sql.SQL(same).format(sql.SQL("q"), sql.SQL("h"), sql.Identifier(name))
            for name in unique.columns
        ),
        own_key=equal(changes.key, "j", "h"),
        same_key=equal(changes.key, "q", "h"),
        newer=newer(changes, sql.SQL("j"), sql.SQL("h")),
        fine=fine,
        q_fine=q_fine,
        deleted=winner.DELETED,
        which=which,
    )
    return sql.SQL(_DELETING if column is None else _SETTING).format(
        table=changes.plan.table.identifier, column=sql.Identifier(column or ""), rows=rows
    )


def _can_be_null(changes: Changes, unique: Unique) -> str | None:
    """A column of the constraint that can be NULL for a moment, and then conflicts with nothing."""
    if unique.nulls_equal:
        return None
    table = changes.plan.table
    referred = {name for key in table.constraints.foreign for name in key.of_columns}
    for name in unique.columns:
        column = table.column(name)
        assert column is not None
        held = name in (*changes.key, *changes.sequence) or name in referred
        if not (held or column.not_null or column.generated or column.type.domain_of):
            return name
    return None


def _may_be_written_again(changes: Changes) -> bool:
    """Whether a row can be deleted and inserted without a loss, and without others' notice."""
    table = changes.plan.table
    hangs = any(key.of == table.oid for key in table.constraints.foreign)
    return changes.whole and not (hangs or table.constraints.fires_on_delete)


def _columns(of: str, names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{}.{}").format(sql.SQL(of), sql.Identifier(name)) for name in names
    )
