"""What the database holds pre-committed: prepared transactions and staging tables, in one look."""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql

from abs_core.model import HandleName, InDoubt
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.staging import is_table_of

_HELD = """
select gid as name, null as relation,
       extract(epoch from clock_timestamp() - prepared)::float8 as age,
       format('prepared transaction %L of role %s', gid, owner) as detail
  from pg_prepared_xacts
 where database = current_database() and gid like 'abs1:%'
union all
select d.description, c.relname, null, format('staging table %s', c.oid::regclass)
  from pg_class c
  join pg_description d on d.objoid = c.oid and d.classoid = 'pg_class'::regclass and d.objsubid = 0
 where c.relnamespace = to_regnamespace({schema}) and c.relkind = 'r' and c.relname like 'staged\\_%'
"""


def in_doubt(
    connection: Connection[Any], options: PostgresOptions, job: str | None
) -> list[InDoubt]:
    """Everything whose name parses as a handle of exactly this job, or of any where it is None.

    A table is ours if its comment is a handle whose table it is. The driver's errors pass through.
    """
    schema = sql.Identifier(options.stateschema).as_string()
    found = []
    for name, relation, age, detail in connection.execute(sql.SQL(_HELD).format(schema=schema)):
        handle = HandleName.parse(name)
        if handle is None or job not in (None, handle.job):
            continue
        if relation is None or is_table_of(relation, handle):
            found.append(InDoubt(handle, age, detail))
    return found
