"""How an epoch's rows get into a table (option ``write``): one class for each way.

What follows from the options alone is the class's, what follows from the table is the object's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import psycopg
import pyarrow as pa
from psycopg import Connection, sql

from abs_clients.postgres.name import columns_of
from abs_core.errors import DataError, SchemaError
from abs_core.model import Finding, Guarantee, HandleName
from abs_sinks.postgres.apply import changes_sql, changes_winner, positions
from abs_sinks.postgres.apply.changes import Changes
from abs_sinks.postgres.apply.changes_plan import changed_columns, plan_changes
from abs_sinks.postgres.apply.newcolumns import settle
from abs_sinks.postgres.apply.rows_sql import inserting, latest_of, resolve_column, resolve_key
from abs_sinks.postgres.columns.plan import CopyPlan, plan_columns
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.options import PostgresOptions

TAKEN = ("23505", "23P01")
"""SQLSTATEs of unique and exclusion constraints."""

_REFERRED = ("23503", "23001")


class Applied(NamedTuple):
    """The statements that apply rows to a table.

    Args:
        first: come before ``written``.
        written: writes rows; its count is that of the rows.
        deleted: deletes rows, after all tables were written to; None: the way deletes none.
        last: come after ``deleted``.
    """

    first: Sequence[sql.Composed]
    written: sql.Composed
    deleted: sql.Composed | None = None
    last: Sequence[sql.Composed] = ()


@dataclass(frozen=True, slots=True)
class Append:
    """Rows are added; with ``keeping`` those that a unique index has already are left out.

    Args:
        plan: of the staged rows.
        key: the columns that identify a row.
        orderby: the columns whose greatest values select one of several rows of a key.
        position: the columns that say when a row was changed in its source.
    """

    rights: ClassVar[tuple[str, ...]] = ("INSERT",)
    """What the role needs on the table; UPDATE, too, where there is a key."""
    empties: ClassVar[bool] = False
    """Whether an epoch replaces what the table holds."""
    alone: ClassVar[bool] = False
    """Whether no other sink of an epoch may write to the table."""
    picks: ClassVar[bool] = False
    """Whether the rows to apply are picked among the staged ones first; see ``picking``."""
    own_problems: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Problems that a staged row has by itself, in the order of looking."""

    plan: CopyPlan
    key: tuple[str, ...] = ()
    orderby: tuple[str, ...] = ()
    position: tuple[str, ...] = ()
    keeping: bool = False

    @classmethod
    def guarantee(cls, protocol: Guarantee) -> Guarantee:
        """What becomes of the protocol's guarantee."""
        return protocol

    @classmethod
    def created(cls, options: PostgresOptions, schema: pa.Schema) -> pa.Schema:
        """The columns that a missing table is created with."""
        return schema

    @classmethod
    def ties(cls, table: CatalogTable, options: PostgresOptions) -> Iterator[Finding]:
        """Findings of constraints by which rows of an epoch decide on one another."""
        return iter(())

    @classmethod
    def planned(
        cls,
        connection: Connection[Any],
        options: PostgresOptions,
        schema: pa.Schema,
        table: CatalogTable,
    ) -> Self:
        """The way into this table. Reads only; the driver's errors pass through.

        Raises:
            SchemaError: the input does not fit the table, or the table does not fit the way.
        """
        table, added, ignored = settle(connection, options, schema, table)
        plan = plan_columns(schema, table, added=added, left_out=ignored)
        if options.onconflict == "nothing" and not table.unique_keys:
            raise SchemaError(
                f"Table {table.label} has no unique index, so no row conflicts with another "
                "(onconflict=nothing).",
                remedy="create a unique index, or leave onconflict out.",
            )
        orderby = tuple(resolve_column(plan, name, "orderby") for name in options.orderby)
        key = resolve_key(plan, options.key)
        return cls(plan, key, orderby, keeping=options.onconflict == "nothing")

    def beside(self) -> list[str]:
        """Names of tables beside the target."""
        return []

    def ensure(self, connection: Connection[Any], options: PostgresOptions) -> None:
        """Create the tables beside the target."""

    def findings(self, connection: Connection[Any]) -> Iterator[Finding]:
        """What is wrong with the tables beside the target; changes nothing."""
        return iter(())

    def lock(self) -> list[sql.Composed]:
        """What makes those take turns who write to the table in this way; none, or one statement."""
        return []

    def picking(self, rows: sql.Composable) -> sql.Composed | None:
        """The query that picks among staged rows; None: all are applied."""
        return None

    def problem(self, picked: sql.Identifier) -> sql.Composed:
        """The query of what is wrong with picked rows, for ``error_of``."""
        raise NotImplementedError(f"{type(self).__name__} picks no rows")

    def error_of(self, row: tuple[Any, ...] | None) -> DataError | None:
        """The error for the row of ``problem``, if it stops the epoch."""
        return None

    def each(self, rows: sql.Composable, place: Sequence[str]) -> sql.Composed:
        """The query of all staged rows with their problem, and with ``place``."""
        raise NotImplementedError(f"{type(self).__name__} picks no rows")

    def apply(self, rows: sql.Composed, picked: sql.Identifier) -> Applied:
        """The statements that apply rows.

        Args:
            rows: the query of the staged ones.
            picked: the table that has the result of ``picking``, if there is one.
        """
        source = latest_of(self.plan, rows, self.key, self.orderby)
        return Applied([], inserting(self.plan, source, self.key, keeping=self.keeping))

    def apply_if(
        self, may: sql.Composed, rows: sql.Composed, picked: sql.Identifier
    ) -> list[sql.Composed]:
        """As ``apply``, for a task by itself; the first one counts, the second one is ``problem``'s.

        Args:
            may: defines the relation ``may``, which has a row if they may change anything.
        """
        # Ordered by the key: tasks that lock the same rows in different orders would deadlock.
        source = sql.SQL("select s.* from ({}) s, may order by {}").format(
            latest_of(self.plan, rows, self.key, self.orderby), columns_of(self.key)
        )
        return [sql.SQL("{} {}").format(may, inserting(self.plan, source, self.key))]

    def tell(
        self, connection: Connection[Any], handle: HandleName, came: int, deleted: int, written: int
    ) -> None:
        """Log what was done, and note it for observers, in the transaction that does it.

        Args:
            handle: one of those that staged the rows.
            came: number of staged rows.
        """

    def remedy(self, error: psycopg.errors.IntegrityError) -> str | None:
        """The way out where a constraint refuses what a source could do."""
        return None


class Upsert(Append):
    """Rows replace those of their key."""

    __slots__ = ()
    rights = ("INSERT", "UPDATE", "SELECT")

    @classmethod
    def guarantee(cls, protocol: Guarantee) -> Guarantee:
        return replace(protocol, limits=(*protocol.limits, _OF_UPSERT))


class Replace(Append):
    """An epoch's rows replace all rows of the table."""

    __slots__ = ()
    rights = ("INSERT", "SELECT", "DELETE")
    empties = True

    @classmethod
    def guarantee(cls, protocol: Guarantee) -> Guarantee:
        visible = "whole epoch: its rows replace all rows of the table at once"
        return replace(protocol, visibility=visible)


@dataclass(frozen=True, slots=True)
class ApplyChanges(Append):
    """Rows are changes of keys, each with its position in the order of all changes."""

    rights = ("INSERT", "UPDATE", "SELECT", "DELETE")
    alone = True
    picks = True
    # A change without an operation or position contradicts nothing: so these are looked for first.
    own_problems = (("null",), (changes_winner.CLASH, "name"))

    changes: Changes | None = None

    @classmethod
    def guarantee(cls, protocol: Guarantee) -> Guarantee:
        return replace(protocol, limits=(*_OF_CHANGES, *protocol.limits[-1:]))

    @classmethod
    def created(cls, options: PostgresOptions, schema: pa.Schema) -> pa.Schema:
        return changed_columns(options, schema)

    @classmethod
    def ties(cls, table: CatalogTable, options: PostgresOptions) -> Iterator[Finding]:
        taken = [
            unique.name for unique in table.constraints.besides(options.key or table.primary_key)
        ]
        if taken:
            yield Finding.warning(
                f"Table {table.label} has constraints besides its key ({', '.join(taken)}). A value "
                "that a source moves from one row to another by two changes stops the query if they "
                "come in two epochs.",
                "drop these constraints here, if the source keeps them.",
            )
        foreign = table.constraints.foreign
        others = [key.name for key in foreign if key.table == table.oid != key.of]
        if options.letters is not None and others:
            yield Finding.warning(
                f"Table {table.label} refers to other tables ({', '.join(others)}). A row that comes "
                "an epoch before the row that it refers to is a dead letter.",
                "write the tables in one epoch, of one topic; or drop these constraints here.",
            )

    @classmethod
    def planned(
        cls,
        connection: Connection[Any],
        options: PostgresOptions,
        schema: pa.Schema,
        table: CatalogTable,
    ) -> Self:
        changes = plan_changes(connection, options, schema, table)
        return cls(changes.plan, changes.key, position=changes.sequence, changes=changes)

    @property
    def _changes(self) -> Changes:
        assert self.changes is not None
        return self.changes

    def beside(self) -> list[str]:
        return [self._changes.positions.as_string()]

    def ensure(self, connection: Connection[Any], options: PostgresOptions) -> None:
        positions.ensure(connection, self._changes, options)

    def findings(self, connection: Connection[Any]) -> Iterator[Finding]:
        there = positions.check_shared(connection, self._changes)
        if there and changes_sql.are_stale(connection, self._changes):
            yield changes_sql.stale(self._changes)

    def lock(self) -> list[sql.Composed]:
        return [changes_sql.locking(self._changes)]

    def picking(self, rows: sql.Composable) -> sql.Composed | None:
        return changes_winner.winners_of(self._changes, rows)

    def problem(self, picked: sql.Identifier) -> sql.Composed:
        return changes_sql.finding(self._changes, picked)

    def error_of(self, row: tuple[Any, ...] | None) -> DataError | None:
        return changes_sql.error_of(self._changes, row)

    def each(self, rows: sql.Composable, place: Sequence[str]) -> sql.Composed:
        return changes_winner.every_change(self._changes, rows, place)

    def apply(self, rows: sql.Composed, picked: sql.Identifier) -> Applied:
        # Checked: the epoch's transaction has asked for problems of the picked rows, and ended if
        # one stops the epoch.
        done = changes_sql.applying(self._changes, picked, checked=True)
        return Applied(
            [*done.times, *done.releases], done.upsert, done.delete, [done.keep, done.expire]
        )

    def apply_if(
        self, may: sql.Composed, rows: sql.Composed, picked: sql.Identifier
    ) -> list[sql.Composed]:
        pick = sql.SQL("{} insert into {} select j.* from ({}) j, may").format(
            may, picked, changes_winner.winners_of(self._changes, rows)
        )
        return [pick, self.problem(picked), *changes_sql.applying(self._changes, picked).all()]

    def tell(
        self, connection: Connection[Any], handle: HandleName, came: int, deleted: int, written: int
    ) -> None:
        changes_sql.tell(connection, self._changes, handle, came, deleted, written)

    def remedy(self, error: psycopg.errors.IntegrityError) -> str | None:
        name = sql.Identifier(error.diag.constraint_name or "").as_string()
        if error.sqlstate in TAKEN:
            return (
                f"if rows of the source exchange values of constraint {name}: drop it and add it "
                "again as DEFERRABLE. If the two changes of such a move can come in two epochs, "
                f"drop it here; the source keeps it: ALTER TABLE {self.plan.table.label} DROP "
                f"CONSTRAINT {name}. Else correct the input, or the row that has the value."
            )
        if error.sqlstate in _REFERRED:
            return (
                f"write the tables of constraint {name} in one epoch (abs_spark.epoch); if rows "
                f"come before those that they refer to: ALTER TABLE {error.diag.table_name} ALTER "
                f"CONSTRAINT {name} DEFERRABLE, or drop it here. Else correct the input."
            )
        return None


Write = Append
"""Any of them: what is said there of appended rows is the default."""

_WRITES: dict[str, type[Write]] = {
    "append": Append,
    "upsert": Upsert,
    "changes": ApplyChanges,
    "replace": Replace,
}


def write_of(options: PostgresOptions) -> type[Write]:
    """The way that the option ``write`` names."""
    return _WRITES[options.write]


_OF_UPSERT = (
    "Across epochs the later epoch wins, even if its value of orderby is smaller: where rows can come "
    "late, take write=changes with sequenceby."
)

_OF_CHANGES = (
    (
        "A change that arrives after the tombstone of its key has expired (option tombstones) is "
        "applied, however old it is."
    ),
    (
        "Of two different changes with one position that come in two epochs the first stays. Other "
        "writers of the table are not asked for a position. Positions that are text are compared as "
        "text: 10 comes before 9."
    ),
    (
        "A source whose positions begin again lower (restored, another server) stops the query only if "
        "the input has the time of its commits (option committedat)."
    ),
)
