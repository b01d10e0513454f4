"""The SQL that moves staged rows to the table, and the resolution of key columns."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from psycopg import Connection, sql

from abs_clients.arrow import alike
from abs_clients.postgres.name import columns_of
from abs_core.errors import DataError, SchemaError
from abs_sinks.postgres.columns.plan import CopyPlan
from abs_sinks.postgres.columns.table import CatalogTable

EMPTY = sql.SQL("")


def union_of(
    plan: CopyPlan,
    staged: Sequence[sql.Identifier],
    good: sql.Composable | None = None,
    more: sql.Composable = EMPTY,
) -> sql.Composed:
    """The query of all rows of these staging tables.

    Args:
        good: the condition of those that are not dead; None: all are good.
        more: further expressions to select, before the columns.
    """
    names = sql.Composed([more, columns_of(plan.names)])
    only = EMPTY if good is None else sql.SQL(" where {}").format(good)
    if not staged:
        return sql.SQL("select {} from {} where false").format(names, plan.table.identifier)
    return sql.SQL(" union all ").join(
        sql.SQL("select {} from {}{}").format(names, table, only) for table in staged
    )


def latest_of(
    plan: CopyPlan,
    source: sql.Composed,
    key: Sequence[str],
    orderby: Sequence[str],
    more: sql.Composable = EMPTY,
) -> sql.Composed:
    """The row with the greatest ``orderby`` per key, any of several equal ones; all rows without it.

    ``more``: further columns of ``source``, before the plan's.
    """
    if not orderby:
        return source
    descending = [sql.SQL("{} desc nulls last").format(sql.Identifier(name)) for name in orderby]
    return sql.SQL("select distinct on ({0}) {1} from ({2}) staged order by {0}, {3}").format(
        columns_of(key),
        sql.Composed([more, columns_of(plan.names)]),
        source,
        sql.SQL(", ").join(descending),
    )


def inserting(
    plan: CopyPlan,
    source: sql.Composable,
    key: Sequence[str],
    names: Sequence[str] | None = None,
    *,
    keeping: bool = False,
) -> sql.Composed:
    """INSERT the rows of ``source``; with a key, replace existing rows.

    The server refuses two rows of one key in ``source`` (SQLSTATE 21000).

    Args:
        names: the columns of ``source``; default: all of the plan.
        keeping: existing rows stay instead; without a key, those of any unique index.
    """
    names = plan.names if names is None else names
    statement = sql.SQL("insert into {} ({}) {}").format(
        plan.table.identifier, columns_of(names), source
    )
    if keeping:
        inferred = sql.SQL("({})").format(columns_of(key)) if key else sql.SQL("")
        return sql.SQL("{} on conflict {} do nothing").format(statement, inferred)
    if not key:
        return statement
    changed = [name for name in names if name not in key or name in written_anew(plan)]
    # A row of key columns only is set to itself, so that it is counted and locked.
    changed = changed or list(key[:1])
    return sql.SQL("{} on conflict ({}) do update set {}").format(
        statement,
        columns_of(key),
        sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed
        ),
    )


_SAME_IF_EQUAL = frozenset(
    {"bool", "int2", "int4", "int8", "uuid", "date", "time", "timestamp", "timestamptz", "bytea"}
    | {"text", "varchar", "oid", "pg_lsn", "inet", "cidr", "macaddr"}
)


def written_anew(plan: CopyPlan) -> set[str]:
    """Columns whose equal values can be written otherwise: 1.0 and 1.00, Abc and abc in citext."""
    return {
        planned.column.name
        for planned in plan.columns
        if planned.column.type.name not in _SAME_IF_EQUAL or planned.column.collation
    }


def resolve_key(plan: CopyPlan, wanted: Sequence[str]) -> tuple[str, ...]:
    """The key's columns as the catalog spells them, matched as the input's columns.

    Raises:
        SchemaError: a column is unknown or not in the input, can be NULL, or no unique index is on
            exactly these columns.
    """
    if not wanted:
        return ()
    table = plan.table
    key = tuple(resolve_column(plan, name, "key") for name in wanted)
    if not any(set(unique) == set(key) for unique in table.unique_keys):
        columns = columns_of(key).as_string()
        raise SchemaError(
            f"Table {table.label} has no unique index on its key ({columns}), so rows cannot be "
            f"upserted by it.{_PARTITIONED if table.partitioned else ''}",
            remedy=f"CREATE UNIQUE INDEX ON {table.label} ({columns}); or name the columns of one "
            f"that is there{_known_keys(table)}.",
        )
    not_null = {column.name for column in table.columns if column.not_null}
    loose = [name for name in key if name not in not_null]
    if loose:
        raise SchemaError(
            f"The key's columns {columns_of(loose).as_string()} of table {table.label} can be NULL: "
            "such rows would be inserted again by every replay.",
            remedy=f"ALTER TABLE {table.label} "
            + ", ".join(
                f"ALTER COLUMN {sql.Identifier(name).as_string()} SET NOT NULL" for name in loose
            )
            + ".",
        )
    return key


def duplicate_key(
    connection: Connection[Any], plan: CopyPlan, key: Sequence[str], source: sql.Composable
) -> DataError:
    """The error for rows of one key, which the server found in ``source``."""
    query = sql.SQL(
        "select concat_ws(', ', {keys}), count(*) from ({source}) s group by {keys}"
        " having count(*) > 1 limit 1"
    ).format(keys=columns_of(key), source=source)
    row = connection.execute(query).fetchone()
    if row is None:
        return DataError(
            f"Rows of one epoch have different keys ({columns_of(key).as_string()}), but table "
            f"{plan.table.label} takes them for the same row.",
            remedy="a trigger that changes the key is the likely cause: change it in Spark in the same "
            "way, so that orderby can choose among its rows.",
        )
    return DataError(
        f"Several rows of one epoch have the same key ({columns_of(key).as_string()}): "
        f"({str(row[0])[:200]}) appears {row[1]} times. It is unknown which of the rows is the "
        "last.",
        remedy="set orderby to a column that tells them apart: its greatest value wins; or keep one "
        "row for each key before you write, for instance by dropDuplicates.",
    )


def resolve_column(plan: CopyPlan, wanted: str, option: str) -> str:
    """The column that an option names, matched as the input's columns.

    Raises:
        SchemaError: the table or the input has none, or several of the table match.
    """
    names = [column.name for column in plan.table.columns]
    matches = alike(wanted, names)
    if len(matches) != 1:
        near = difflib.get_close_matches(wanted, names, n=3) or names
        raise SchemaError(
            f"The option {option} names the column {wanted!r}, and table {plan.table.label} has "
            f"{'several such' if matches else 'none such'}.",
            remedy=f"take one of {', '.join(near)}.",
        )
    if matches[0] not in plan.names:
        raise SchemaError(
            f"The option {option} names the column {wanted!r}, which the input does not have.",
            remedy=f"the input has {', '.join(plan.names)}.",
        )
    return matches[0]


_PARTITIONED = " A unique index of a partitioned table must contain the partition's columns."


def _known_keys(table: CatalogTable) -> str:
    keys = " or ".join(f"({columns_of(key).as_string()})" for key in table.unique_keys)
    return f": {keys}" if keys else ""
