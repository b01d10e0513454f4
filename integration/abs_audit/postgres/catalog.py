"""A table's columns in the catalog, and a lossless way to carry each one to the audit.

Shares no code with the sink's catalog reader and binary COPY: an audit that shared the code would
share its errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import Connection, sql

from abs_audit.families import Family, Type
from abs_clients.postgres.name import TableName
from abs_core.errors import OptionError


@dataclass(frozen=True, slots=True)
class Carriage:
    """How the values of a type are carried: server -> COPY's CSV -> Arrow -> duckdb.

    Args:
        select: SQL that the server sends; ``{c}`` is the column.
        arrow: the type as which the CSV field is parsed.
        take: duckdb's expression for the value; ``{c}`` is the Arrow column.
    """

    type: Type
    arrow: pa.DataType
    select: str = "{c}"
    take: str = "{c}"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table or view.

    Args:
        oids: of the relation and of all that it reads: partitions, children, a view's tables.
        place: SQL that says where a row is.
    """

    schema: str
    name: str
    oids: tuple[int, ...]
    columns: Mapping[str, Carriage]
    place: Carriage

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


def read_by(connection: Connection[Any], table: CatalogTable) -> list[tuple[str, str]]:
    """Schema and name of the relation and of all that it reads."""
    return connection.execute(_NAMES, {"oids": list(table.oids)}).fetchall()


_NAMES = """
select n.nspname::text, c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.oid = any(%(oids)s)
"""


def find_table(connection: Connection[Any], name: TableName) -> CatalogTable:
    """Find the relation; the driver's errors pass through unmapped.

    Raises OptionError if there is none of this name, or if it has no columns.
    """
    found = connection.execute(_RELATION, {"name": str(name)}).fetchone()
    columns = connection.execute(_COLUMNS, {"name": str(name)}).fetchall()
    if found is None or not columns:
        raise OptionError(
            f"There is no table {name} that this role can see{'' if found is None else ' into'}.",
            remedy="give its schema, and quote names with capitals.",
        )
    oids = connection.execute(_BELOW, {"name": str(name)}).fetchall()
    return CatalogTable(
        schema=found[0],
        name=found[1],
        oids=tuple(row[0] for row in oids),
        columns={
            column: _JSON_OF_ARRAY if is_array else _BY_TYPE.get(kind, _TEXT)
            for column, kind, is_array in columns
        },
        place=_PLACE if found[2] in ("r", "p", "m") else _NOWHERE,
    )


# 'infinity' is the same word in both; only the place of BC differs.
_ERA = r"regexp_replace({c}, '^(\S+)(.*) BC$', '\1 (BC)\2')"

# As the type's output function writes it: a cast to text may write it otherwise (inet).
_TEXT = Carriage(Type(Family.TEXT), pa.string())
_JSON = Carriage(Type(Family.JSON), pa.string())
# Ends with the row's next change. Views and foreign tables have none.
_PLACE = Carriage(_TEXT.type, pa.string(), "tableoid::regclass::text || ', ctid ' || ctid::text")
_NOWHERE = Carriage(_TEXT.type, pa.string(), "null::text")
_JSON_OF_ARRAY = Carriage(Type(Family.JSON), pa.string(), "to_json({c})::text")
_INTEGER = Carriage(Type(Family.INTEGER, 64), pa.int64(), "{c}::int8")
_INTERVAL = """case when isfinite({c}) then
    (extract(year from {c}) * 12 + extract(month from {c}))::int8 || ' ' ||
    extract(day from {c})::int8 || ' ' || (extract(hour from {c}) * 3600000000
    + extract(minute from {c}) * 60000000 + extract(microseconds from {c}))::int8
    else {c}::text end"""

_BY_TYPE = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), _INTEGER),
    "bool": Carriage(Type(Family.BOOLEAN), pa.bool_()),
    "float4": Carriage(Type(Family.FLOAT, 32), pa.float32()),
    "float8": Carriage(Type(Family.FLOAT, 64), pa.float64()),
    "bpchar": Carriage(Type(Family.TEXT), pa.string(), "{c}::text"),  # without its padding
    "numeric": Carriage(Type(Family.DECIMAL), pa.string()),
    "bytea": Carriage(Type(Family.BINARY), pa.string(), "encode({c}, 'hex')", "unhex({c})"),
    "uuid": Carriage(Type(Family.UUID), pa.string(), take="cast({c} as uuid)"),
    "date": Carriage(Type(Family.DATE), pa.string(), take=f"cast({_ERA} as date)"),
    "timestamp": Carriage(Type(Family.INSTANT, 6), pa.string(), take=f"cast({_ERA} as timestamp)"),
    "timestamptz": Carriage(
        Type(Family.INSTANT, 6), pa.string(), take=f"cast({_ERA} as timestamptz)"
    ),
    "time": Carriage(Type(Family.TIME, 6), pa.string(), take="cast({c} as time)"),
    "interval": Carriage(Type(Family.INTERVAL), pa.string(), _INTERVAL),
    "json": _JSON,
    "jsonb": _JSON,
}

_RELATION = """
select n.nspname, c.relname, c.relkind::text
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass(%(name)s) and c.relkind in ('r', 'p', 'v', 'm', 'f')
"""

# Domains are resolved to the type below them.
_COLUMNS = """
with recursive resolved(attnum, attname, type) as (
    select attnum, attname, atttypid from pg_attribute
     where attrelid = to_regclass(%(name)s) and attnum > 0 and not attisdropped
    union all
    select r.attnum, r.attname, t.typbasetype
      from resolved r join pg_type t on t.oid = r.type where t.typtype = 'd'
)
select r.attname, case when n.nspname = 'pg_catalog' then t.typname else '' end,
       t.typcategory = 'A' and t.typlen = -1
  from resolved r join pg_type t on t.oid = r.type join pg_namespace n on n.oid = t.typnamespace
 where t.typtype <> 'd' order by r.attnum
"""

_BELOW = """
with recursive below(oid) as (
    select to_regclass(%(name)s)::oid
    union
    select next.oid from below b cross join lateral (
        select inhrelid from pg_inherits where inhparent = b.oid
        union all
        select d.refobjid from pg_rewrite r join pg_depend d on d.objid = r.oid
         where r.ev_class = b.oid and d.classid = 'pg_rewrite'::regclass
           and d.refclassid = 'pg_class'::regclass) next(oid)
)
select oid from below
"""
