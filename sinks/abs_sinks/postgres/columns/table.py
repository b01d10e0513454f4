"""The shape of the target table, read from the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import Connection, Cursor, sql
from psycopg.rows import dict_row

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.name import TableName
from abs_core.errors import PreflightError, SchemaError
from abs_sinks.postgres.columns.constraints import Constraints, read_constraints
from abs_sinks.postgres.columns.types import Column, PgType


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """An ordinary or partitioned table that rows can be copied into.

    Args:
        logged: False for an UNLOGGED table: a crash of the server empties it.
        row_security: row-level security applies to this role; COPY FROM is refused then.
        columns: in the order of the catalog.
        unique_keys: each set of columns that ON CONFLICT can name, the primary key among them.
        primary_key: the columns of the primary key; empty without one, or if it is deferrable.
        constraints: what ties its rows to one another, and to those of other tables.
    """

    schema: str
    name: str
    oid: int
    columns: tuple[Column, ...]
    logged: bool = True
    row_security: bool = False
    unique_keys: tuple[tuple[str, ...], ...] = ()
    primary_key: tuple[str, ...] = ()
    partitioned: bool = False
    constraints: Constraints = field(default_factory=Constraints)

    @property
    def identifier(self) -> sql.Identifier:
        """The qualified name, to be composed into a statement."""
        return sql.Identifier(self.schema, self.name)

    @property
    def label(self) -> str:
        """The qualified name as SQL writes it."""
        return self.identifier.as_string()

    def hidden(self) -> PreflightError | None:
        """The error of row-level security that applies to this role."""
        if not self.row_security:
            return None
        return PreflightError(
            f"Row-level security of table {self.label} applies to the job's role: the server refuses "
            "COPY, and leaves rows that it hides as they are.",
            remedy="use a role that owns the table or has BYPASSRLS.",
        )

    def column(self, name: str) -> Column | None:
        """The column of exactly this name."""
        return next((column for column in self.columns if column.name == name), None)


def read_table(connection: Connection[Any], name: TableName, *, fitting: str = "") -> CatalogTable:
    """The table's shape as this role sees it now. Reads only; takes no lock that outlives it.

    Partitioned tables are fine if no partition is a foreign table. Views, foreign tables, temporary
    tables and the like are refused: COPY cannot write to them, or PREPARE TRANSACTION cannot hold
    what it wrote.

    Args:
        connection: inside or outside a transaction.
        fitting: a CREATE TABLE statement that would fit the input, shown if the table is missing.

    Raises:
        SchemaError: there is no such table; the message has the search path and the remedy.
        PreflightError: there is one, of a kind that this sink cannot write to.
        TargetError: the server refused, or went away.
    """
    with (
        translate_errors(f"reading the shape of table {name}"),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        relation = cursor.execute(_RELATION, {"name": str(name)}).fetchone()
        if relation is None:
            path = (cursor.execute(_SEARCH_PATH).fetchone() or {})["path"]
            raise _missing(name, path, fitting)
        _require_writable(relation)
        columns = cursor.execute(_COLUMNS, {"oid": relation["oid"]}).fetchall()
        keys = cursor.execute(_KEYS, {"oid": relation["oid"]}).fetchall()
        by_oid = _types(cursor, relation["oid"])
        constraints = read_constraints(connection, relation["oid"])
    return CatalogTable(
        schema=relation["schema"],
        name=relation["name"],
        oid=relation["oid"],
        columns=tuple(_column(row, by_oid) for row in columns),
        logged=relation["persistence"] == "p",
        row_security=relation["row_security"],
        unique_keys=tuple(tuple(key["columns"]) for key in keys),
        primary_key=next((tuple(key["columns"]) for key in keys if key["primary"]), ()),
        partitioned=relation["kind"] == "p",
        constraints=constraints,
    )


def read_types(
    connection: Connection[Any], declared: Mapping[str, tuple[str, int]]
) -> dict[str, PgType]:
    """The types of columns that are not there yet.

    Args:
        declared: by the column's name: its type as SQL writes it, and the modifier of that.
    """
    labels = [label for label, _ in declared.values()]
    query = (
        "select n::regtype::oid as oid from unnest(%s::text[]) with ordinality t(n, i) order by i"
    )
    with (
        translate_errors("looking for the types of new columns"),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        oids = [row["oid"] for row in cursor.execute(query, (labels,))]
        by_oid = _types(cursor, 0, oids)
    return {
        name: _type(oid, modifier, label, by_oid)
        for oid, (name, (label, modifier)) in zip(oids, declared.items(), strict=True)
    }


def _types(
    cursor: Cursor[dict[str, Any]], table: int, more: Sequence[int] = ()
) -> dict[int, dict[str, Any]]:
    """The types of a table's columns and ``more``, with all that they consist of, by oid."""
    encoding = cursor.connection.info.parameter_status("server_encoding")
    rows = cursor.execute(_TYPES, {"oid": table, "more": list(more)}).fetchall()
    return {row["oid"]: {**row, "one_byte": encoding == "SQL_ASCII"} for row in rows}


def _missing(name: TableName, path: str, fitting: str) -> SchemaError:
    where = f"schema {name.schema}" if name.schema else f"the search path ({path or 'empty'})"
    how = f", for instance: {fitting}" if fitting else " (CREATE TABLE)"
    return SchemaError(
        f"Table {name} does not exist in {where}.",
        remedy=f"set createtable=true or create it yourself{how}"
        f"{'' if name.schema else '; name its schema if it lies elsewhere'}.",
    )


_REFUSED_KINDS = {
    "v": ("a view", "name the table behind it"),
    "m": ("a materialized view", "name the table behind it"),
    "f": (
        "a foreign table, which a prepared transaction cannot write to",
        "point url and dbtable at the server that holds the table itself",
    ),
    "S": ("a sequence", "name a table"),
    "i": ("an index", "name the table it belongs to"),
    "I": ("a partitioned index", "name the table it belongs to"),
    "c": ("a composite type", "name a table"),
    "t": ("a TOAST table", "name the table it belongs to"),
}


def _require_writable(relation: Mapping[str, Any]) -> None:
    table = sql.Identifier(relation["schema"], relation["name"]).as_string()
    if relation["kind"] in _REFUSED_KINDS:
        kind, remedy = _REFUSED_KINDS[relation["kind"]]
        raise PreflightError(f"{table} is {kind}.", remedy=f"{remedy}.")
    if relation["persistence"] == "t":
        raise PreflightError(
            f"{table} is a temporary table: other connections do not see it, and a transaction "
            "that wrote to it cannot be prepared.",
            remedy="take an ordinary table.",
        )
    if relation["foreign_partitions"]:
        raise PreflightError(
            f"{table} has foreign tables as partitions: {', '.join(relation['foreign_partitions'])}. "
            "A prepared transaction cannot write to them.",
            remedy="detach them, or write to the partitions that lie on this server.",
        )


def _column(row: Mapping[str, Any], types: Mapping[int, Mapping[str, Any]]) -> Column:
    return Column(
        name=row["name"],
        type=_type(row["type"], row["typmod"], row["label"], types),
        not_null=row["not_null"],
        has_default=row["has_default"] and not row["generated"],
        identity=row["identity"],
        generated=bool(row["generated"]),
        collation=row["collation"] or "",
    )


def _type(oid: int, typmod: int, label: str, types: Mapping[int, Mapping[str, Any]]) -> PgType:
    base, domain_of = types[oid], ""
    while base["kind"] == "d":  # a domain carries its base type's modifier
        typmod, domain_of = base["domain_typmod"], base["domain_label"]
        base = types[base["domain_base"]]
    element = None
    if base["element"]:
        inner = types[base["element"]]
        element = _type(inner["oid"], typmod, inner["label"], types)
        if typmod >= 0 and label.endswith("[]"):
            element = replace(element, label=label.removesuffix("[]"))
    bounds = None
    if base["bounds"]:
        bounds = _type(base["bounds"], -1, types[base["bounds"]]["label"], types)
    builtin = base["schema"] == "pg_catalog"
    return PgType(
        oid=oid,
        name=base["name"] if builtin else f"{base['schema']}.{base['name']}",
        label=label,
        typmod=typmod,
        receive=base["receive"],
        element=element,
        category=base["category"],
        size=base["size"],
        bounds=bounds,
        one_byte=base["one_byte"],
        domain_of=domain_of,
    )


_RELATION = """
select c.oid, n.nspname as schema, c.relname as name, c.relkind::text as kind,
       c.relpersistence::text as persistence,
       case when c.relkind in ('r', 'p') then row_security_active(c.oid) else false end
           as row_security,
       case when c.relkind = 'p' then
           (select coalesce(array_agg(p.relid::regclass::text order by 1), '{}')
              from pg_partition_tree(c.oid) p join pg_class f on f.oid = p.relid
             where f.relkind = 'f')
           else '{}' end as foreign_partitions
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass(%(name)s)
"""

_SEARCH_PATH = "select array_to_string(current_schemas(false), ', ') as path"

_COLUMNS = """
select attname as name, atttypid as type, atttypmod as typmod,
       format_type(atttypid, atttypmod) as label, attnotnull as not_null,
       atthasdef or typdefault is not null as has_default,
       attidentity::text as identity, attgenerated::text as generated,
       (select format('%%I.%%I', n.nspname, c.collname)
          from pg_collation c join pg_namespace n on n.oid = c.collnamespace
         where c.oid = attcollation and attcollation <> coalesce(
               (select b.typcollation from pg_type b where b.oid = pg_type.typbasetype),
               typcollation)) as collation
  from pg_attribute join pg_type on pg_type.oid = atttypid
 where attrelid = %(oid)s and attnum > 0 and not attisdropped
 order by attnum
"""

# The types of the columns with all that domains and arrays lead to. Only true arrays have elements
# on the wire: point and name have a typelem, too, but are no arrays.
_TYPES = """
with recursive reached(oid) as (
    select atttypid from pg_attribute
     where attrelid = %(oid)s and attnum > 0 and not attisdropped
    union
    select unnest(%(more)s::oid[])
    union
    select next.oid
      from reached join pg_type t on t.oid = reached.oid
     left join pg_range r on t.oid in (r.rngtypid, r.rngmultitypid)
     cross join lateral (values (t.typbasetype), (coalesce(r.rngsubtype, 0)),
            (case when t.typcategory = 'A' and t.typlen = -1 then t.typelem else 0 end)) next(oid)
     where next.oid <> 0
)
select t.oid, t.typname as name, n.nspname as schema, t.typtype::text as kind,
       t.typbasetype as domain_base, t.typtypmod as domain_typmod,
       format_type(t.typbasetype, t.typtypmod) as domain_label,
       case when t.typcategory = 'A' and t.typlen = -1 and t.typtype = 'b'
            then t.typelem else 0 end as element,
       case when p.prolang = 12 then p.prosrc else '' end as receive,
       format_type(t.oid, null) as label,
       t.typcategory::text as category, t.typlen as size, coalesce(r.rngsubtype, 0) as bounds
  from reached
  join pg_type t on t.oid = reached.oid
  join pg_namespace n on n.oid = t.typnamespace
  left join pg_proc p on p.oid = t.typreceive
  left join pg_range r on t.oid in (r.rngtypid, r.rngmultitypid)
"""

# What INSERT ... ON CONFLICT can infer: no partial, invalid, expression or deferrable index.
_KEYS = """
select (select array_agg(a.attname::text order by k.position)
          from unnest(i.indkey::int2[]) with ordinality k(attnum, position)
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
         where k.position <= i.indnkeyatts) as columns, i.indisprimary as primary
  from pg_index i
 where i.indrelid = %(oid)s and i.indisunique and i.indisvalid and i.indimmediate
   and i.indpred is null and i.indexprs is null
 order by i.indisprimary desc, i.indexrelid
"""
