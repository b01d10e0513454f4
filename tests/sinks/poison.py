"""Rows of each kind that a target must refuse, and targets with a place for them, one for each cell.

A cell is a format that keeps dead letters, a protocol, and where the register lies. A row's id tells
whether it is bad, and how.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from abs_clients.postgres.name import TableName
from abs_core import crash
from abs_core.contracts import Sink
from abs_core.errors import OptionError
from abs_core.model import Drained, Share, Wrote
from abs_core.patience import Patience
from abs_core.registers import FileRegister
from abs_sinks.deadletters.letter import schema_of
from abs_sinks.deadletters.place import KeptLetters
from abs_sinks.deadletters.row import rows_of
from abs_sinks.door import format_named, format_names
from abs_sinks.kafka.replay import KafkaLetters
from abs_sinks.kafka.sink import KafkaSink
from abs_sinks.options import PROTOCOLS
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.replay import PostgresLetters
from abs_sinks.postgres.testing import TableHarness
from abs_sinks.postgres.testing import Variant as Table
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.sink import S3Letters, S3Sink
from abs_testing.case import JOB
from abs_testing.crash_child import DONE, Life
from abs_testing.engine import Run
from tests.kit.kafka import Variant as Topic
from tests.kit.kafka import limit
from tests.sinks.kafka.buried import Buried as BuriedTopic
from tests.sinks.kafka.buried import buried as buried_topic
from tests.sinks.s3.buried import Buried as BuriedFolder
from tests.sinks.s3.buried import buried as buried_folder

EPOCHS, TASKS, ROWS = 3, 2, 200
"""Of each kind one of so many rows is bad: 0.5 %."""

KIND_AT = 500
"""Ids of a task from here on are of bad rows, one for each kind."""

PLACES = {
    "abs-postgres": {"url": "postgresql://h/d", "dbtable": "t", "deadletter": "d"},
    "abs-kafka": {"kafka.bootstrap.servers": "h:1", "topic": "t", "deadletter": "d"},
    "abs-s3": {"path": "s3://bkt/t", "deadletter": "s3://bkt/d"},
    "abs-delta": {"path": "s3://bkt/t", "deadletter": "d"},
    "abs-iceberg": {"table": "db.t", "deadletter": "d"},
}
"""Options of each format with a place of its own for dead letters; a new format needs a line."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to keep dead letters."""

    system: str
    protocol: str
    own_register: bool

    @property
    def name(self) -> str:
        return f"{self.system}-{self.protocol}{'' if self.own_register else '-foreign-register'}"


def cells() -> list[Cell]:
    """All that the door finds: formats and protocols that take a place of their own."""
    found = []
    for name in format_names():
        kind = format_named(name)
        if not kind.buries:
            continue
        for protocol in PROTOCOLS:
            wal = {"wal": "file:///wal"} if (name, protocol) == ("abs-kafka", "wal") else {}
            upsert = {"write": "upsert", "key": "id"} if name == "abs-postgres" else {}
            more = upsert if protocol == "idempotent" else {}
            try:
                kind.parse({**PLACES[name], **wal, **more, "protocol": protocol})
            except OptionError:
                continue  # the system's own tests say why
            # What commits with its register in one transaction needs it there.
            places = (True,) if protocol == "idempotent" else (True, False)
            found += [Cell(name.removeprefix("abs-"), protocol, own) for own in places]
    return found


@dataclass(frozen=True, slots=True)
class Recipe:
    """The rows of a system.

    Args:
        row: makes one from its id and what is bad about it.
        kinds: the code of a dead letter, and what is bad about the row.
    """

    schema: pa.Schema
    row: Callable[[int, Mapping[str, Any]], Mapping[str, Any]]
    kinds: tuple[tuple[str, Mapping[str, Any]], ...]

    def batch(self, epoch: int, task: int) -> pa.RecordBatch:
        """A task's rows, the bad ones among the good."""
        first = (epoch * TASKS + task) * 1000
        rows = [self.row(first + n, {}) for n in range(ROWS)]
        for n, (_, bad) in enumerate(self.kinds):
            rows.insert(1 + n * 17, self.row(first + KIND_AT + n, bad))
        columns = [_column([row[field.name] for row in rows], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def given(self) -> list[int]:
        """The ids of all good rows."""
        tasks = range(0, EPOCHS * TASKS * 1000, 1000)
        return [first + n for first in tasks for n in range(ROWS)]

    def dead(self) -> Counter[tuple[str, int]]:
        """Code and id of each bad row."""
        tasks = range(0, EPOCHS * TASKS * 1000, 1000)
        return Counter(
            (code, first + KIND_AT + n) for first in tasks for n, (code, _) in enumerate(self.kinds)
        )


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Of texts their bytes are given, also such as are no text."""
    if not pa.types.is_string(kind):
        return pa.array(values, kind)
    return pa.array([v.encode() if isinstance(v, str) else v for v in values]).view(kind)


def _in_table(id_: int, bad: Mapping[str, Any]) -> Mapping[str, Any]:
    # No unique value: under 2pc an attempt that lost would hold its lock.
    good = {"value": "v", "n": 1, "w": "w", "c": 1, "f": 0, "u": None, "e": "e"}
    return {"id": id_, **good, **bad}


def _in_topic(id_: int, bad: Mapping[str, Any]) -> Mapping[str, Any]:
    row = {"value": str(id_), "partition": None, "timestamp": None, "headers": None, **bad}
    return {**row, "value": f"{id_}{bad.get('value', '')}"}


def _in_folder(id_: int, bad: Mapping[str, Any]) -> Mapping[str, Any]:
    # Several folders, in another order than the rows.
    return {"id": id_, "value": "t", "folder": f"f{-id_ % 3}", "day": id_ % 2, **bad}


RECIPES = {
    "postgres": Recipe(
        pa.schema(
            [
                *[
                    ("id", pa.int64()),
                    ("value", pa.string()),
                    ("n", pa.date32()),
                    ("w", pa.string()),
                ],
                *[("c", pa.int32()), ("f", pa.int32()), ("u", pa.int64()), ("e", pa.string())],
            ]
        ),
        _in_table,
        (
            ("nul-character", {"value": "a\0b"}),
            ("encoding", {"value": b"\xff"}),
            ("too-long", {"value": "too long"}),
            ("out-of-range", {"n": 2**31 - 1}),
            ("null", {"w": None}),
            ("23514", {"c": -1}),
            ("23503", {"f": 99}),
            ("23505", {"u": -1}),
            ("23514", {"e": "bad"}),
        ),
    ),
    "kafka": Recipe(
        pa.schema(
            [
                ("value", pa.string()),
                ("partition", pa.int32()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        ),
        _in_topic,
        (
            ("too-large", {"value": " " * 1_100_000}),
            ("partition", {"partition": 99}),
            ("out-of-range", {"timestamp": -1}),
            ("key-missing", {"headers": [{"key": None, "value": b"v"}]}),
        ),
    ),
    "s3": Recipe(
        pa.schema(
            [
                *[("id", pa.int64()), ("value", pa.string())],
                *[("folder", pa.string()), ("day", pa.date32())],
            ]
        ),
        _in_folder,
        (
            ("nul-character", {"value": "a\0b"}),
            ("encoding", {"value": b"\xff"}),
            ("too-long", {"folder": "x" * 1100}),
            ("encoding", {"folder": b"\xff"}),
            ("out-of-range", {"day": 2**30}),
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class PoisonedLife(Life):
    """A process of a job whose tasks write a recipe's batches."""

    system: str = ""

    def live(self) -> int:
        crash.arm(self.crash)
        sink = self.new_sink()
        store = None if self.own_register else FileRegister(self.folder / "register")
        run = Run(sink, JOB, store=store, patience=Patience(seconds=20.0))
        for epoch in range(EPOCHS):
            done = self.folder / f"{epoch}.done"
            if not done.exists():
                run.commit(epoch, [self._task(run, epoch, task) for task in range(TASKS)])
                done.touch()
        sink.close()
        return DONE

    def _task(self, run: Run, epoch: int, task: int) -> Share:
        """A task; of the first one another attempt runs before it and loses."""
        batch = RECIPES[self.system].batch(epoch, task)
        share: Share = Drained(batch.num_rows)
        for _ in range(2 if task == 0 else 1):
            if not run.decided(epoch):
                attempt = run.attempt(epoch, task)
                attempt.writer.write(batch)
                share = Wrote(batch.num_rows, attempt.writer.pre_commit())
        return share


class Poisoned(Protocol):
    """An open target of a cell."""

    new_sink: Callable[[], Sink]
    own_register: bool

    def ids(self) -> Counter[int]:
        """The rows that a reader of the target sees."""

    def kept(self) -> KeptLetters: ...

    def leftovers(self, job: str) -> Sequence[str]: ...

    def close(self) -> None: ...


def dead_in(target: Poisoned) -> Counter[tuple[str, int]]:
    """Code and id of each dead letter, whose row is read back."""
    kept = target.kept()
    found = kept.shown([letter["id"] for letter in kept.found()])
    read = [(each["code"], rows_of([each["row"]], schema_of(each["schema"]))) for each in found]
    return Counter((code, _id_of(row)) for code, row in read)


def _id_of(row: pa.RecordBatch) -> int:
    if "id" in row.schema.names:
        return int(row["id"][0].as_py())
    return int(row["value"][0].as_py())


_TABLE = """
create table {t}_of (value int primary key);
insert into {t}_of values (0);
create domain {t}_d as text check (value <> 'bad');
alter table {t} alter value type varchar(5), add n date, add w text not null,
  add c int check (c >= 0), add f int references {t}_of, add u bigint unique, add e {t}_d;
insert into {t} (id, w, u) values (-1, 'w', -1)
"""


class PoisonedTable(TableHarness):
    def __init__(self, url: str, cell: Cell) -> None:
        write = "upsert" if cell.protocol == "idempotent" else "append"
        super().__init__(url, Table(cell.protocol, write, cell.own_register))
        for statement in _TABLE.replace("{t}", self.table).split(";"):
            self.db.execute(statement.encode())
        dead = TableName.parse(f"{self.table}_dead")
        self.options = replace(self.options, deadletter=dead, deadlettermax=1.0)
        schema = RECIPES["postgres"].schema
        self.new_sink = partial(PostgresSink, self.options, schema, co_commit=cell.own_register)

    def ids(self) -> Counter[int]:
        found = self.db.execute(f"select id from {self.table} where id >= 0")
        return Counter(id_ for (id_,) in found)

    def kept(self) -> KeptLetters:
        return PostgresLetters(self.options)

    def close(self) -> None:
        super().close()
        self.reconnect()
        self.db.execute(f"drop table if exists {self.table}_dead, {self.table}_of cascade")
        self.db.execute(f"drop domain if exists {self.table}_d cascade")
        self.db.close()


def _topic_ids(harness: BuriedTopic) -> Counter[int]:
    return Counter(int(value or b"") for _, value in harness.records())


def _folder_ids(harness: BuriedFolder) -> Counter[int]:
    return Counter(id_ for id_, _ in harness.read())


def table(url: str, cell: Cell) -> closing[Poisoned]:
    return closing(PoisonedTable(url, cell))


@contextmanager
def topic(bootstrap: str, cell: Cell) -> Iterator[Poisoned]:
    with buried_topic(bootstrap, Topic(cell.protocol, cell.own_register)) as harness:
        limit(harness.options.kafka, harness.dead, "10000000")
        pairs = {**dict(harness.options.kafka.pairs), "message.max.bytes": "10000000"}
        settings = replace(harness.options.kafka, pairs=tuple(sorted(pairs.items())))
        options = replace(harness.options, kafka=settings)
        schema = RECIPES["kafka"].schema
        made: Any = harness
        made.new_sink = partial(KafkaSink, options, schema, co_commit=cell.own_register)
        made.ids = partial(_topic_ids, harness)
        made.kept = partial(KafkaLetters, options)
        yield made


@contextmanager
def folder(path: str, given: Mapping[str, str], cell: Cell) -> Iterator[Poisoned]:
    place = f"{path}/{secrets.token_hex(4)}"
    with buried_folder(place, {**given, "protocol": cell.protocol}) as harness:
        options: S3Options = replace(harness.options, partitionby=("folder", "day"))
        made: Any = harness
        made.use(options)
        made.own_register = cell.own_register
        made.new_sink = partial(S3Sink, options, RECIPES["s3"].schema)
        made.ids = partial(_folder_ids, harness)
        made.kept = partial(S3Letters, options)
        yield made


@contextmanager
def life_of(target: Poisoned, cell: Cell) -> Iterator[PoisonedLife]:
    """The job of a target, with a checkpoint of its own."""
    with tempfile.TemporaryDirectory(prefix="abs-poison-") as checkpoint:
        yield PoisonedLife(target.new_sink, cell.own_register, Path(checkpoint), None, cell.system)
