"""A table that changes are applied to, and a job that applies them, step by step."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection

from abs_clients.postgres.pool import close_idle
from abs_core.contracts import RegisterStore, Sink, Task
from abs_core.model import Drained, Share, Wrote
from abs_core.protocol import Skip
from abs_core.registers import MemoryRegister
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_testing.cuts import Cut
from abs_testing.engine import Run

_numbers = count()

CHANGES = pa.schema(
    [("id", pa.int64()), ("at", pa.int64()), ("op", pa.string()), ("v", pa.string())]
)
PARTIAL = CHANGES.append(pa.field("big", pa.string())).append(
    pa.field("same", pa.list_(pa.string()))
)

Change = tuple[Any, ...]


class Changing:
    """A table with a state schema of its own, in a database.

    Args:
        url: of the database.
        columns: of the table, without its name.
        schema: of the changes.
        own: whether the register is in this database.
        options: of the sink, beside those of every test.
    """

    def __init__(
        self,
        url: str,
        columns: str,
        schema: pa.Schema = CHANGES,
        *,
        own: bool = True,
        **options: str,
    ) -> None:
        number = next(_numbers)
        self.url, self.schema, self.own = url, schema, own
        self.table, self.state = f"changed{number}", f"abschanged{number}"
        self.db: Connection[Any] = psycopg.connect(url, autocommit=True)
        self.db.execute(f"create table {self.table} ({columns})")
        self.given = {
            "url": url,
            "dbtable": self.table,
            "stateschema": self.state,
            "protocol": "wal",
            "write": "changes",
            "sequenceby": "at",
            "locktimeout": "5",
        } | options
        self._register = MemoryRegister()

    @property
    def options(self) -> PostgresOptions:
        return PostgresOptions.parse(self.given)

    def sink(self, **options: str) -> PostgresSink:
        given = PostgresOptions.parse(self.given | options)
        return PostgresSink(given, self.schema, co_commit=self.own)

    def job(self, name: str = "job", cut: Cut | None = None, **options: str) -> Job:
        """A new run of the job."""
        store: RegisterStore | None = None if self.own else self._register
        return Job(self.sink(**options), self.schema, name, cut=cut, store=store)

    def apply(self, *epochs: Sequence[Change], job: str = "once", **options: str) -> None:
        """One run of a job of its own, with one task in each epoch."""
        run = self.job(f"{job}{secrets.token_hex(3)}", None, **options)
        for number, changes in enumerate(epochs):
            run.apply(number, changes)

    @property
    def seen(self) -> str:
        """The columns of the table that changes write."""
        hidden = {"op", "same"} | ({"at"} if self.given.get("positions") == "side" else set())
        return ", ".join(name for name in self.schema.names if name not in hidden)

    def empty(self) -> None:
        """Delete rows, positions and tombstones."""
        self.db.execute(f"truncate {self.table}")
        if self._positions() is not None:
            self.db.execute(f"truncate {self._positions()}")

    def rows(self, columns: str = "id, at, v") -> list[tuple[Any, ...]]:
        return self.db.execute(f"select {columns} from {self.table} order by id").fetchall()

    def positions(self) -> list[tuple[Any, ...]]:
        """Keys and positions in the positions table, and whether they are tombstones."""
        query = f'select id, at, "abs:gone" is not null from {self._positions()} order by id'
        return self.db.execute(query).fetchall()

    def _positions(self) -> str | None:
        found = self.db.execute(
            "select c.oid::regclass::text from pg_class c where relname like 'positions\\_%%'"
            " and relkind = 'r' and relnamespace = to_regnamespace(%s)",
            (self.state,),
        ).fetchone()
        return None if found is None else str(found[0])

    def close(self) -> None:
        close_idle()
        for (gid,) in self.db.execute(
            "select gid from pg_prepared_xacts where database = current_database()"
        ).fetchall():
            self.db.execute(f"rollback prepared '{gid}'")
        self.db.execute(f"drop schema if exists {self.state} cascade")
        self.db.execute(f"drop table if exists {self.table} cascade")
        self.db.close()


class Job(Run):
    """A run whose tasks write batches of changes."""

    def __init__(self, sink: Sink, schema: pa.Schema, name: str, **settings: Any) -> None:
        super().__init__(sink, name, **settings)
        self._schema = schema

    def stage(self, epoch: int, partition: int, changes: Sequence[Change]) -> Share:
        """A task: begin; then write and pre-commit, or drain."""
        state, planned = self.begin(epoch)
        if isinstance(planned, Skip):
            return Drained(len(changes), None)
        name = secrets.token_hex(6)
        who = state.register, self.job, state.generation
        task = Task(*who, epoch, partition, name, state.frontier, state.abandoned)
        writer = self.sink.writer(task)
        if changes:
            writer.write(batch(self._schema, changes))
        return Wrote(len(changes), writer.pre_commit())

    def apply(self, epoch: int, *parts: Sequence[Change]) -> None:
        """An epoch with a task for each part."""
        self.commit(epoch, [self.stage(epoch, n, changes) for n, changes in enumerate(parts)])


def batch(schema: pa.Schema, changes: Sequence[Change]) -> pa.RecordBatch:
    columns: Mapping[str, list[Any]] = {
        field.name: [change[n] for change in changes] for n, field in enumerate(schema)
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def changing(url: str, columns: str, schema: pa.Schema = CHANGES, **more: Any) -> closing[Changing]:
    return closing(Changing(url, columns, schema, **more))


OWN = "id bigint primary key, at bigint, v text"
"""A table with a position."""
BARE = "id bigint primary key, v text"
"""A table without one."""
own = partial(changing, columns=OWN)
bare = partial(changing, columns=BARE, positions="side")
