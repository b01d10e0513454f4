"""What ``write=changes`` means for one table: which columns say what changes, where positions are kept.

The positions table lies in the state schema, one for each target table: for each deleted key its
position and when it was deleted (a tombstone), and with ``positions=side`` the position of every row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from abs_sinks.options import Deletes
from abs_sinks.postgres.apply.rows_sql import written_anew
from abs_sinks.postgres.columns.plan import CopyPlan

GONE = "abs:gone"
"""When a key was deleted, in the positions table; NULL: its row is there."""


@dataclass(frozen=True, slots=True)
class Changes:
    """How changes are applied to one table; can be pickled.

    Args:
        plan: of the staged rows: the written columns, and those that only say what changes.
        key: the columns that identify a row.
        sequence: the position's columns.
        written: the columns of the table that the input has.
        side: whether the positions table has the position of every row; else the row has it.
        deletes: see ``Deletes``; the column as it is staged.
        unchanged: the staged column that lists what a change leaves as it is.
        place: schema and name of the positions table.
        tombstones: seconds for which a tombstone is kept.
        left_out: the input's columns that are not written, which a change may list as unchanged.
        whole: whether a change says all that a row of the table has.
        committed: the staged column of ``committedat``; None: positions that begin again lower are
            not noticed.
    """

    plan: CopyPlan
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    written: tuple[str, ...]
    side: bool
    deletes: Deletes
    unchanged: str | None
    place: tuple[str, str]
    tombstones: float
    whole: bool
    left_out: tuple[str, ...] = ()
    committed: str | None = None

    @property
    def spelled(self) -> tuple[str, ...]:
        """Columns of the key of which equal values can be written in several ways (1.0, 1.00)."""
        anew = written_anew(self.plan)
        return tuple(name for name in self.key if name in anew)

    @property
    def positions(self) -> sql.Identifier:
        """The positions table."""
        return sql.Identifier(*self.place)

    def agreement(self) -> str:
        """What all jobs that apply changes to the table have in common."""
        settings = {
            "table": self.plan.table.label,
            "key": sorted(self.key),
            "sequenceby": list(self.sequence),
            "positions": "side" if self.side else "table",
        }
        return json.dumps(settings, ensure_ascii=False)


def equal(names: Sequence[str], left: str, right: str) -> sql.Composed:
    return sql.SQL(" and ").join(
        sql.SQL("{0}.{2} = {1}.{2}").format(sql.SQL(left), sql.SQL(right), sql.Identifier(name))
        for name in names
    )


def newer(changes: Changes, change: sql.Composable, there: sql.Composable) -> sql.Composable:
    """Whether a change is newer than the table's row, by the row's own position."""
    return sql.SQL("true") if changes.side else later(changes.sequence, change, there)


def later(sequence: Sequence[str], one: sql.Composable, other: sql.Composable) -> sql.Composed:
    """Whether one position is greater than the other, where NULL is the lowest."""
    return sql.SQL("coalesce({} > {}, true)").format(row_of(sequence, one), row_of(sequence, other))


def row_of(names: Sequence[str], of: sql.Composable) -> sql.Composed:
    columns = [sql.SQL("{}.{}").format(of, sql.Identifier(name)) for name in names]
    return sql.SQL("row({})").format(sql.SQL(", ").join(columns))
