"""Epochs of rows that depend on one another, and which of them are dead by the definition.

The definition is tried with all sets of rows, each by a query without dead letters, on tables that are
as they were before. Nothing of the product's search is used.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, product
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection

from abs_clients.postgres.pool import close_idle
from abs_core.contracts import Task
from abs_core.errors import AbsError
from abs_core.model import AND, Share
from abs_core.sinkmap import STRIDE
from abs_sinks.postgres import PostgresGroup, PostgresOptions, PostgresSink
from tests.sinks.postgres.changing import Job
from tests.sinks.postgres.grouped import TwoTables

_names = count()

CHANGES = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.int64()),
        ("op", pa.string()),
        ("of", pa.int64()),
        ("v", pa.string()),
    ]
)
ROWS = pa.schema([("id", pa.int64()), ("of", pa.int64()), ("v", pa.string())])

Row = tuple[Any, ...]
"""Of ``CHANGES`` or ``ROWS``."""
Numbered = tuple[int, Row]
"""The number of its table, and the row."""

OWN = "id bigint primary key, at bigint, of bigint, v text check (v <> 'bad')"


@dataclass(frozen=True)
class World:
    """Tables with constraints, without names: ``{0}`` and ``{1}`` stand for the tables.

    Args:
        more: statements after the tables are there.
        columns: of each table.
        write: ``changes`` or ``append``.
    """

    more: str
    columns: tuple[str, ...] = (OWN,)
    write: str = "changes"


WORLDS = {
    "unique": World("alter table {0} add unique (v)"),
    "unique-deferrable": World("alter table {0} add unique (v) deferrable"),
    "unique-not-null": World("alter table {0} add unique (v), alter v set not null"),
    "exclusion": World("alter table {0} add exclude using btree (v with =)"),
    "tree": World("alter table {0} add foreign key (of) references {0}"),
    "tree-deferrable": World("alter table {0} add foreign key (of) references {0} deferrable"),
    "tree-and-unique": World("alter table {0} add foreign key (of) references {0}, add unique (v)"),
    "domain": World(
        "create domain {0}_d as text not null check (value <> 'b');"
        "alter table {0} alter v type {0}_d"
    ),
    "parents-first": World("alter table {1} add foreign key (of) references {0}", (OWN, OWN)),
    "children-first": World("alter table {0} add foreign key (of) references {1}", (OWN, OWN)),
    "circle": World(
        "alter table {0} add foreign key (of) references {1} deferrable initially deferred;"
        "alter table {1} add foreign key (of) references {0} deferrable, add unique (v)",
        (OWN, OWN),
    ),
    "append-tree": World(
        "alter table {0} add foreign key (of) references {0}, add unique (v)",
        ("id bigint primary key, of bigint, v text check (v <> 'bad')",),
        "append",
    ),
}


class Tables(TwoTables):
    """A ``Sink`` of a world's tables in an own state schema; rows of partition n go to table n."""

    def __init__(self, given: Sequence[dict[str, str]], schemas: Sequence[pa.Schema]) -> None:
        options = [PostgresOptions.parse(each) for each in given]
        both = list(zip(options, schemas, strict=True))
        self._sinks = [PostgresSink(*each) for each in both]
        self._group = PostgresGroup(dict(enumerate(both)))
        self._own = True
        self.schemas = schemas

    @property
    def target_id(self) -> str:
        return AND.join(sink.target_id for sink in self._sinks)

    def writer(self, task: Task) -> Any:
        number = task.partition
        return self._sinks[number].writer(replace(task, partition=number * (1 + STRIDE)))


class TablesJob(Job):
    """A run of a job on such tables."""

    def __init__(self, sink: Tables, name: str) -> None:
        super().__init__(sink, sink.schemas[0], name)
        self._schemas = sink.schemas

    def stage(self, epoch: int, partition: int, changes: Sequence[Row]) -> Share:
        self._schema = self._schemas[partition]
        return super().stage(epoch, partition, changes)


class Played:
    """The tables of a world in a database; ``there``: what they hold before the epoch."""

    def __init__(self, url: str, world: World, there: Sequence[Numbered]) -> None:
        number = next(_names)
        self.world, self.there = world, list(there)
        self.schema = CHANGES if world.write == "changes" else ROWS
        self.names = [f"dead{number}_{n}" for n in range(len(world.columns))]
        self.state = f"absdead{number}"
        self.db: Connection[Any] = psycopg.connect(url, autocommit=True)
        for name, columns in zip(self.names, world.columns, strict=True):
            self.db.execute(f"create table {name} ({columns})")
        self.db.execute(world.more.format(*self.names))
        more = {"write": "changes", "sequenceby": "at"} if self.schema is CHANGES else {}
        self._given = [
            {"url": url, "dbtable": name, "stateschema": self.state, "protocol": "wal", **more}
            for name in self.names
        ]
        self._jobs = count()
        self._fill()

    def job(self, *, buries: bool) -> TablesJob:
        """A run of a new job; a task of partition n writes to table n."""
        dead = {"deadlettermax": "1"} if buries else {}
        given = [
            each | dead | ({"deadletter": f"{each['dbtable']}_dead"} if buries else {})
            for each in self._given
        ]
        return TablesJob(Tables(given, [self.schema] * len(given)), f"job{next(self._jobs)}")

    def apply(self, rows: Sequence[Numbered], *, buries: bool) -> None:
        """Apply the rows as the first epoch of a job of its own, to what was there before."""
        self._empty()
        job = self.job(buries=buries)
        parts = [[row for n, row in rows if n == number] for number in range(len(self.names))]
        job.apply(0, *parts)

    def takes(self, rows: Sequence[Numbered]) -> bool:
        try:
            self.apply(rows, buries=False)
        except AbsError:
            return False
        return True

    def holds(self) -> list[list[Row]]:
        return [self.db.execute(f"select * from {n} order by id").fetchall() for n in self.names]

    def letters(self) -> list[Numbered]:
        """Table, and the row without the columns that JSON need not hold in this order."""
        found = []
        for number, name in enumerate(self.names):
            query = f'select "row"::jsonb from {name}_dead'
            for (row,) in self.db.execute(query):
                found.append((number, tuple(row[field] for field in self.schema.names)))
        return sorted(found, key=self.order)

    def order(self, numbered: Numbered) -> tuple[Any, ...]:
        """In which order rows live."""
        number, row = numbered
        if self.schema is CHANGES:
            return row[1], number, row[0]
        query = "select md5(row(%s::bigint, %s::bigint, %s::text)::text)"
        (digest,) = self.db.execute(query, row).fetchone() or ("",)
        return number, digest, row[0]

    def dead_of(self, rows: Sequence[Numbered]) -> list[Numbered]:
        """The definition: the rest is accepted, no part can come back, and the later rows are dead."""
        ordered = sorted(rows, key=self.order)
        for lives in product((True, False), repeat=len(ordered)):
            if self.takes([row for row, there in zip(ordered, lives, strict=True) if there]):
                return [row for row, there in zip(ordered, lives, strict=True) if not there]
        raise AssertionError("an epoch without rows is refused")

    def _fill(self) -> None:
        self.db.execute("begin; set constraints all deferred")
        for number, (id_, of, v) in self.there:
            at = "at, " if self.schema is CHANGES else ""
            zero = "0, " if at else ""
            query = f"insert into {self.names[number]} (id, {at}of, v) values (%s, {zero}%s, %s)"
            self.db.execute(query, (id_, of, v))
        self.db.execute("commit")

    def _empty(self) -> None:
        query = (
            "select c.oid::regclass::text from pg_class c where relkind = 'r'"
            " and relname like 'positions%%' and relnamespace = to_regnamespace(%s)"
        )
        positions = [name for (name,) in self.db.execute(query, (self.state,))]
        self.db.execute(f"truncate {', '.join([*self.names, *positions])}")
        self._fill()

    def close(self) -> None:
        close_idle()
        self.db.execute(f"drop schema if exists {self.state} cascade")
        for name in self.names:
            self.db.execute(f"drop table if exists {name}, {name}_dead cascade")
            self.db.execute(f"drop domain if exists {name}_d cascade")
        self.db.close()


def played(url: str, name: str, there: Sequence[Numbered]) -> closing[Played]:
    return closing(Played(url, WORLDS[name], there))


def drawn(name: str, seed: int, most: int) -> tuple[list[Numbered], list[Numbered]]:
    """What is there before an epoch, and the epoch's rows."""
    draw = random.Random(f"{name} {seed}")
    world = WORLDS[name]
    tables = range(len(world.columns))
    values = ["x", "y", "z"]
    there = [
        (number, (id_, None, values.pop()))
        for number in tables
        for id_ in range(draw.randint(0, 3 // len(tables)))
    ]
    positions = draw.sample(range(1, 99), most)
    rows: list[Numbered] = []
    for at in positions[: draw.randint(2, most)]:
        id_, of = draw.randrange(4), draw.choice([None, None, *range(4)])
        v = draw.choice(["x", "a", "a", "b", "b", f"v{at}", "bad"])
        if world.write == "append":
            rows.append((0, (10 + id_, draw.choice([of, of and of + 10]), v)))
        elif draw.random() < 0.25:
            rows.append((draw.choice(tables), (id_, at, "d", None, None)))
        else:
            rows.append((draw.choice(tables), (id_, at, "u", of, v)))
    return there, rows
