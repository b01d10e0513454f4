"""Which tables an epoch was written to: a name may be that of another table later.

PostgreSQL gives each table an oid, which ALTER TABLE, VACUUM FULL and pg_upgrade keep. A handle
tells those of its tables. A dump that is restored makes all tables again, the state schema among them:
then oids tell nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql

from abs_core.model import Committable
from abs_core.strictjson import fields, parse, reading, whole

TABLES = "tables"
"""Key of a committable's ``extra``: the oids of the tables of its rows, by qualified name."""

Table = tuple[str, int]
"""Qualified name, as SQL writes it, and oid."""

_PRESENT = """
select coalesce((select oid::bigint from pg_namespace where nspname = {schema}), 0),
       array(select coalesce(to_regclass(name)::oid::bigint, 0)
               from unnest({names}::text[]) with ordinality as asked (name, place) order by place)
"""


@dataclass(frozen=True, slots=True)
class Present:
    """What the database has now.

    Args:
        home: oid of the state schema; 0: there is none.
        tables: those that the names mean; 0: none.
    """

    home: int
    tables: Collection[Table] = ()

    def others(self, tables: Iterable[Table]) -> list[str]:
        """The names that mean another table now, or none."""
        return sorted({table[0] for table in tables if table not in self.tables})


def noting(tables: Iterable[Table]) -> tuple[tuple[str, str], ...]:
    """The ``extra`` of a committable that tells these."""
    oids = dict(sorted(tables))
    return ((TABLES, json.dumps(oids)),) if oids else ()


def tables_of(committables: Iterable[Committable]) -> tuple[Table, ...]:
    """The tables that these handles tell; none: by an older release.

    Raises:
        CorruptionError: the text is none of ``noting``.
    """
    texts = {dict(committable.extra).get(TABLES, "{}") for committable in committables}
    with reading("What a handle tells of its tables", "restart the query"):
        each_oids = [fields(parse(text)) for text in texts]
        return tuple(
            sorted({(name, whole(oid)) for oids in each_oids for name, oid in oids.items()})
        )


def present(connection: Connection[Any], schema: str, names: Sequence[str] = ()) -> Present:
    """Look at the tables of these names; psycopg's errors pass through."""
    query = sql.SQL(_PRESENT).format(schema=schema, names=list(names))
    row = connection.execute(query).fetchone()
    assert row is not None
    home, oids = row
    return Present(home, set(zip(names, oids, strict=True)))
