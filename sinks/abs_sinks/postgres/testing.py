"""A table on a real server, for ``abs_testing.check_sink``: proves the sink where it will run.

    check_sink(partial(open_table, "postgresql://...", Variant("wal", "upsert")))

Tables and schemas are made in the database that the URL names, and dropped again. Prepared
transactions that are found in that database are rolled back: give it one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import psycopg
from psycopg import Connection, sql

from abs_clients.postgres.address import Address
from abs_clients.postgres.metadata import exists
from abs_clients.postgres.pool import close_idle
from abs_core.contracts import Sink
from abs_core.model import HandleName
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.sink import PostgresSink
from abs_sinks.postgres.staging import Staging
from abs_testing import SCHEMA, Row

_numbers = count()

CLOSE_SECONDS = 20
"""How long the removal of a table waits for sessions that use it."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to use the sink."""

    protocol: str
    write: str
    own_register: bool = True

    @property
    def name(self) -> str:
        foreign = "" if self.own_register else "-foreign-register"
        return f"{self.protocol}-{self.write}{foreign}"


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("2pc", "append"),
        Variant("2pc", "append", own_register=False),
        Variant("wal", "append"),
        Variant("wal", "append", own_register=False),
        Variant("wal", "upsert"),
        Variant("wal", "upsert", own_register=False),
        Variant("idempotent", "upsert"),
    )
}


class TableHarness:
    """A table and a state schema of its own: what ``check_sink`` drives, and looks into."""

    def __init__(self, url: str, variant: Variant, superuser: str | None = None) -> None:
        number = next(_numbers)
        self.own_register = variant.own_register
        self.url = url
        self.table = f"t{number}"
        self.schema = f"abs{number}"
        options = {
            "url": url,
            "dbtable": self.table,
            "stateschema": self.schema,
            "protocol": variant.protocol,
            "write": variant.write,
            "locktimeout": "2",
        }
        if variant.write == "upsert":
            options["key"] = "id"
        self.options = PostgresOptions.parse(options)
        if superuser is not None:
            self.held = partial(_held, self.options, url, superuser)
            """See ``abs_testing.Holding``."""
        self.tables, self.keeps_last = [self.table], not variant.own_register
        if not variant.own_register:
            self.backup = self._backup
        self.new_sink: Callable[[], Sink] = partial(
            PostgresSink, self.options, SCHEMA, co_commit=variant.own_register
        )
        self.db: Connection[Any] = psycopg.connect(url, autocommit=True)
        self._key = " primary key" if variant.write == "upsert" else ""
        self.make()

    def make(self) -> None:
        """Make an empty table."""
        self.db.execute(f"create table {self.table} (id bigint{self._key}, value text)")

    def end_prepared(self) -> None:
        """Roll back what is prepared, as who wants to drop a table must: it holds locks."""
        for gid in self.prepared():
            self.db.execute(sql.SQL("rollback prepared {}").format(gid))

    def remake(self) -> None:
        """See ``abs_testing.Remaking``."""
        self.end_prepared()
        self.db.execute(f"drop table {self.table}")
        self.make()

    def at(self, url: str) -> TableHarness:
        """The same names in another database, to which table and schema were copied."""
        other = copy(self)
        other.url = url
        other.options = replace(self.options, address=Address.parse(url))
        other.new_sink = partial(PostgresSink, other.options, SCHEMA, co_commit=self.own_register)
        other.db = psycopg.connect(url, autocommit=True)
        return other

    def reconnect(self) -> None:
        """Look at the server over a new connection: the old one has gone with the server."""
        self.db.close()
        self.db = psycopg.connect(self.url, autocommit=True)

    def read(self) -> Sequence[Row]:
        return self.db.execute(f"select id, value from {self.table}").fetchall()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """See ``abs_testing.Refusing``; a table with prepared rows cannot: they are accepted."""
        alter = f"set local lock_timeout = '100ms'; alter table {self.table}"
        try:
            self.db.execute(f"{alter} add constraint short check (length(value) < 40) not valid")
        except psycopg.errors.LockNotAvailable:
            yield
            return
        try:
            yield
        finally:
            self.db.execute(f"alter table {self.table} drop constraint short")

    def prepared(self) -> list[str]:
        """The gids that are prepared in this database."""
        query = "select gid from pg_prepared_xacts where database = current_database()"
        return [gid for (gid,) in self.db.execute(query)]

    def markers(self) -> list[tuple[Any, ...]]:
        """Job, attempt, register, generation and epoch of each marker row."""
        if not exists(self.db, f"{self.schema}.marker"):
            return []
        query = f"select job, attempt, register, generation, epoch from {self.schema}.marker"
        return self.db.execute(query).fetchall()

    def staged(self) -> list[str]:
        """The comments of the staging tables."""
        query = (
            "select coalesce(obj_description(c.oid), relname) from pg_class c"
            " where relnamespace = to_regnamespace(%s) and relname like 'staged%%'"
            " and relkind = 'r'"
        )
        return [text for (text,) in self.db.execute(query, (self.schema,))]

    def locks(self) -> list[str]:
        """Who holds a lock on the table, besides this look."""
        query = (
            "select coalesce(application_name, virtualtransaction) from pg_locks"
            " left join pg_stat_activity using (pid)"
            " where relation = %s::regclass and pid is distinct from pg_backend_pid()"
        )
        return [str(who) for (who,) in self.db.execute(query, (self.table,))]

    def leftovers(self, job: str) -> Sequence[str]:
        # The last finished epoch's tell later whether the database went back.
        markers = self.markers()
        mine = [row for row in markers if row[0] == job]
        last = {row[2]: max(r[3:] for r in mine if r[2] == row[2]) for row in mine}
        spent = [row for row in mine if not self.keeps_last or row[3:] < last[row[2]]]

        def of_job(text: str) -> bool:
            handle = HandleName.parse(text)
            return handle is None or handle.job == job

        return [
            *(f"prepared {gid}" for gid in self.prepared() if of_job(gid)),
            *(f"marker of {row}" for row in spent),
            *(f"staged {name}" for name in self.staged() if of_job(name)),
            *(f"lock of {who}" for who in self.locks()),
        ]

    def _backup(self) -> Callable[[], None]:
        """See ``abs_testing.GoingBack``: rows and markers, as a dump of the database has them."""
        copies = {}
        for name in (*self.tables, f"{self.schema}.marker"):
            copies[name] = f"{self.schema}.kept{next(_numbers)}"
            self.db.execute(f"create table {copies[name]} as table {name}")

        def restore() -> None:
            for name, kept in copies.items():
                put_back = f"truncate {name}; insert into {name} table {kept}"
                self.db.execute(f"begin; {put_back}; commit")

        return restore

    def saved(self, job: str) -> Callable[[], None]:
        """See ``abs_testing.Restoring``."""
        register = sql.Identifier(self.schema, "register")
        rows: list[Any] = []
        if exists(self.db, f"{self.schema}.register"):
            query = sql.SQL("select r::text from {} r where job = {}").format(register, job)
            rows = self.db.execute(query).fetchall()

        def restore() -> None:
            self.db.execute(sql.SQL("delete from {} where job = {}").format(register, job))
            put = sql.SQL("insert into {} select (%s::{}).*").format(register, register)
            for row in rows:
                self.db.execute(put, row)

        return restore

    def close(self) -> None:
        """Remove all of it from the server.

        Raises:
            TimeoutError: sessions that are named keep a lock, as a writer does that was not ended.
        """
        close_idle()
        self.db.execute(f"set lock_timeout = '{CLOSE_SECONDS}s'")
        self.end_prepared()
        try:
            self.db.execute(f"drop schema if exists {self.schema} cascade")
            self.db.execute(f"drop table if exists {self.table}, {self.table}_before")
        except psycopg.errors.LockNotAvailable as error:
            raise TimeoutError(
                f"Table {self.table} or schema {self.schema} is locked for {CLOSE_SECONDS} s by "
                f"{self._sessions()}: close or abort what your test has left open, and look for the "
                "failure before this one."
            ) from error
        finally:
            self.db.close()

    def _sessions(self) -> str:
        """The other sessions in a transaction, with what they run."""
        query = (
            "select pid || ': ' || left(query, 100) from pg_stat_activity where pid <> pg_backend_pid()"
            " and datname = current_database() and xact_start is not null"
        )
        return "; ".join(text for (text,) in self.db.execute(query)) or "nobody now"


@contextmanager
def _held(options: PostgresOptions, url: str, superuser: str, handle: HandleName) -> Iterator[None]:
    """The handle is the superuser's: its gid, or by a trigger the dropping of its staging table."""
    name = Staging(options).table(handle).as_string()
    gid = sql.Literal(str(handle))
    with psycopg.connect(superuser, autocommit=True) as other:
        staged = exists(other, name)
        if staged:
            other.execute(sql.SQL(_REFUSE_TO_DROP).format(name=name))
        else:
            with psycopg.connect(url, autocommit=True) as mine:
                mine.execute(sql.SQL("rollback prepared {}").format(gid))
            other.execute(sql.SQL("begin; prepare transaction {}").format(gid))
        try:
            yield
        finally:
            if staged:
                other.execute("drop function refuse_to_drop cascade")
            else:
                other.execute(sql.SQL("rollback prepared {}").format(gid))


_REFUSE_TO_DROP = """
create function refuse_to_drop() returns event_trigger language plpgsql as $$ begin
    if exists (select from pg_event_trigger_dropped_objects()
                where replace(object_identity, '"', '') = replace({name}, '"', '')) then
        raise exception 'this table stays';
    end if;
end $$;
create event trigger refuse_to_drop on sql_drop execute function refuse_to_drop();
"""


@contextmanager
def open_table(url: str, variant: Variant, superuser: str | None = None) -> Iterator[TableHarness]:
    """A harness on a new, empty table.

    Args:
        url: libpq URI or keyword string of a role that may create tables and schemas.
        superuser: the same for a superuser of that database; with it the rule on handles that
            belong to another role is checked, too.
    """
    harness = TableHarness(url, variant, superuser)
    try:
        yield harness
    finally:
        harness.close()
