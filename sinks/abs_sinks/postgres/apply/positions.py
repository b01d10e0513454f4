"""The positions table of a target table: makes it, and lets it follow the target's types."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import Connection, sql

from abs_clients.postgres.metadata import exists, in_turn, relatives
from abs_clients.postgres.name import TableName, columns_of
from abs_core.errors import SchemaError
from abs_core.strictjson import fields, parse, reading
from abs_sinks.postgres.apply import committed
from abs_sinks.postgres.apply.changes import GONE, Changes
from abs_sinks.postgres.columns.table import CatalogTable, read_table
from abs_sinks.postgres.options import PostgresOptions

_WIDER = ("int2", "int4", "int8", "numeric")
"""Each takes the values of those before it."""


def positions_name(label: str) -> str:
    """The name of the positions table of a table with this label, in the state schema."""
    return f"positions_{blake2b(label.encode(), digest_size=16).hexdigest()}"


def positions_of(connection: Connection[Any], table: CatalogTable) -> list[tuple[str, str]]:
    """State schema and ``agreement`` of each positions table that the table has."""
    rows = connection.execute(_PLACES, ([positions_name(table.label)],)).fetchall()
    return [(schema, comment) for schema, comment, _ in rows]


def agreed_in(comment: str, name: str) -> dict[str, Any]:
    """What a positions table's comment says that its jobs have agreed on.

    Raises:
        CorruptionError: somebody has changed the comment.
    """
    remedy = "give it back the comment that it had (a JSON object)"
    with reading(f"The comment of the positions table {name}", remedy):
        return fields(parse(comment))


def check_shared(connection: Connection[Any], changes: Changes) -> bool:
    """Whether the positions table is there.

    Raises:
        SchemaError: another job applies changes to the table in another way, or keeps their
            positions in another state schema.
    """
    schema, name = changes.place
    sides = positions_of(connection, changes.plan.table)
    for other, comment in sides:
        if other != schema or comment != changes.agreement():
            raise SchemaError(
                f"Another job applies changes to table {changes.plan.table.label}. Its positions "
                f"are in schema {other}, for {comment}; of this job they are in {schema}, for "
                f"{changes.agreement()}. Jobs on one table share its positions.",
                remedy="use one key, sequenceby, positions and stateschema for all of them. If "
                "there is no such job any more: DROP TABLE "
                f"{sql.Identifier(other, name).as_string()}; what was deleted is forgotten then.",
            )
    _check_relatives(connection, changes.plan.table)
    return bool(sides)


def _check_relatives(connection: Connection[Any], table: CatalogTable) -> None:
    """Raise SchemaError if changes are applied to a table with the same rows by other positions."""
    kin_names = relatives(connection, table.oid)
    labels = [sql.Identifier(schema, name).as_string() for schema, name in kin_names]
    kin = {positions_name(label): label for label in labels}
    for place, _, name in connection.execute(_PLACES, ([*kin],)).fetchall():
        raise SchemaError(
            f"Changes are applied to table {kin[name]}, too, which shares rows with {table.label}: one "
            "is a partition or a child of the other. Each has positions of its own, so an older change "
            "could overwrite a newer one.",
            remedy="apply all of them to one of the two tables, best the parent. If nothing applies "
            f"changes to {kin[name]} any more: DROP TABLE {sql.Identifier(place, name).as_string()}; "
            "what was deleted is forgotten then.",
        )


def ensure(connection: Connection[Any], changes: Changes, options: PostgresOptions) -> None:
    """Create the positions table, or give it the types that its columns have by now.

    Raises:
        SchemaError: see ``check_shared`` and ``follow``.
    """
    if there := check_shared(connection, changes):
        follow(connection, changes)
    options.state.ensure(connection)
    statements = _creating(changes)

    def create() -> None:
        fresh = not exists(connection, changes.positions.as_string())
        if fresh:
            connection.execute(statements)
        if changes.committed is not None:
            empty = sql.SQL("select not exists (select from {})").format(
                changes.plan.table.identifier
            )
            fresh = fresh and (changes.side or connection.execute(empty).fetchone() == (True,))
            committed.ensure(connection, changes, fresh=fresh)

    in_turn(connection, create)
    # Another job may have created it since the first look, with another agreement.
    if not there:
        check_shared(connection, changes)


def _creating(changes: Changes) -> sql.Composed:
    own = {planned.column.name: planned.column for planned in changes.plan.columns}
    columns: list[sql.Composable] = [sql.Identifier(name) for name in changes.key]
    for name in changes.sequence:
        collation = f" collate {own[name].collation}" if own[name].collation else ""
        columns.append(
            sql.SQL("null::{}{} as {}").format(
                sql.SQL(own[name].type.domain_of or own[name].type.label),
                sql.SQL(collation),
                sql.Identifier(name),
            )
        )
    required = sql.SQL(", ").join(
        sql.SQL("alter column {} set not null").format(sql.Identifier(name))
        for name in changes.sequence
    )
    return sql.SQL(_CREATE).format(
        positions=changes.positions,
        columns=sql.SQL(", ").join(columns),
        gone=sql.Identifier(GONE),
        table=changes.plan.table.identifier,
        key=columns_of(changes.key),
        required=required,
        agreement=changes.agreement(),
        # Room in each page for a new version of each row: no index is written then.
        room=sql.SQL("with (fillfactor = 50) " if changes.side else ""),
    )


_CREATE = """
create table {positions} {room}as
  select {columns}, null::timestamptz as {gone} from {table} with no data;
alter table {positions} add primary key ({key}), {required};
create index on {positions} ({gone}) where {gone} is not null;
comment on table {positions} is {agreement}
"""


def follow(connection: Connection[Any], changes: Changes) -> None:
    """Alter the types of the positions table to those that the table's columns have by now.

    Of keys that are equal in the new type the newest position stays. A position that is kept here only
    is made wider, never narrower: several jobs can have it.

    Raises:
        SchemaError: the server cannot convert what is there.
        ContentionError: another job holds the table for longer than ``locktimeout``.
    """
    place, (schema, table) = changes.positions, changes.place
    kept = read_table(connection, TableName(table, schema))
    wanted = [
        sql.SQL("alter column {0} type {1} using {0}::{1}").format(sql.Identifier(name), kind)
        for name, kind in _types_to_follow(changes, kept)
    ]
    if not wanted:
        return
    key, order = columns_of(changes.key), [*changes.sequence, "ctid"]
    statements = sql.SQL(_FOLLOW).format(
        positions=place,
        wanted=sql.SQL(", ").join(wanted),
        key=key,
        equal=sql.SQL(" and ").join(
            sql.SQL("a.{0} = b.{0}").format(sql.Identifier(name)) for name in changes.key
        ),
        a=sql.SQL(", ").join(sql.Identifier("a", name) for name in order),
        b=sql.SQL(", ").join(sql.Identifier("b", name) for name in order),
    )
    try:
        with connection.transaction():
            # The key goes first: two keys can become equal in the new type, until one is deleted.
            (name,) = connection.execute(_PRIMARY, (place.as_string(),)).fetchone() or ("",)
            dropping = sql.SQL("alter table {} drop constraint {}")
            connection.execute(dropping.format(place, sql.Identifier(name)))
            connection.execute(statements)
    except (psycopg.DataError, psycopg.errors.CannotCoerce) as error:
        raise SchemaError(
            f"Columns of table {changes.plan.table.label} have other types by now, and its positions "
            f"({place.as_string()}) cannot be converted to them: {error.diag.message_primary}.",
            remedy=f"DROP TABLE {place.as_string()}; it is made again, and what was deleted is "
            "forgotten then.",
        ) from error


def _types_to_follow(changes: Changes, kept: CatalogTable) -> Iterator[tuple[str, sql.SQL]]:
    """Columns of the positions table that have another type than they should, and that one."""
    now = {planned.column.name: planned.column for planned in changes.plan.columns}
    had = {column.name: column for column in kept.columns}
    for name in (*changes.key, *changes.sequence):
        old, new = had[name], now[name]
        # A domain's own conditions are left to the table.
        kind = new.type.domain_of or new.type.label
        if (old.type.domain_of or old.type.label, old.collation) == (kind, new.collation):
            continue
        if name not in changes.written:  # kept here only
            ranks = [_WIDER.index(c.type.name) if c.type.name in _WIDER else -1 for c in (old, new)]
            if min(ranks) < 0 or ranks[0] > ranks[1] or old.type.label == "numeric":
                continue
            kind = new.type.name
        yield name, sql.SQL(f"{kind} collate {new.collation}" if new.collation else kind)


_PRIMARY = "select conname from pg_constraint where conrelid = to_regclass(%s) and contype = 'p'"

_FOLLOW = """
alter table {positions} {wanted};
delete from {positions} a using {positions} b where {equal} and row({a}) < row({b});
alter table {positions} add primary key ({key})
"""


_PLACES = """
select n.nspname, coalesce(obj_description(c.oid, 'pg_class'), ''), c.relname
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relname = any(%s) and c.relkind = 'r'
"""
