"""A table that lacks a column of the rows, which its sink adds; see ``schemachange``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

import psycopg
from psycopg import sql

from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant
from abs_testing import SCHEMA, Row


class Growing(TableHarness):
    """A table that lacks a column of the rows, which its sink adds."""

    def __init__(self, url: str, variant: Variant) -> None:
        super().__init__(url, variant)
        self.at_once = variant.protocol == "wal" and variant.own_register
        self.options = replace(self.options, schemachange="add")
        self.new_sink = partial(PostgresSink, self.options, SCHEMA, co_commit=self.own_register)
        self.db.execute(f"alter table {self.table} drop column value")

    def has_column(self) -> bool:
        query = (
            "select exists (select from pg_attribute where attrelid = %s::regclass"
            " and attname = 'value' and not attisdropped)"
        )
        return self.db.execute(query, (self.table,)).fetchone() == (True,)

    def read(self) -> Sequence[Row]:
        has = self.has_column()
        found = super().read() if has else self.db.execute(f"select from {self.table}").fetchall()
        if self.at_once:
            assert has == bool(found), "the table's shape is not that of its decided epochs"
        assert has or not found
        return found

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """By a trigger, since the column may not be there yet."""
        name = f"{self.table}_long"
        set_up = sql.SQL(_REFUSE).format(sql.Identifier(name), sql.Identifier(self.table))
        try:
            self.db.execute(set_up)
        except psycopg.errors.LockNotAvailable:
            yield
            return
        try:
            yield
        finally:
            self.db.execute(f"drop function {name} cascade")


_REFUSE = """
create function {0}() returns trigger language plpgsql as $$ begin
    if length(to_jsonb(new) ->> 'value') >= 40 then raise check_violation; end if;
    return new;
end $$;
set local lock_timeout = '100ms';
create trigger long before insert or update on {1} for each row execute function {0}()
"""


def growing(url: str, name: str) -> closing[Growing]:
    return closing(Growing(url, VARIANTS[name]))
