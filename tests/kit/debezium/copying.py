"""The check: a recorded feed ends as the source's table, or is refused by name; nothing else.

A row may differ only where Debezium sent two different values alike: then the recording itself proves
that no reader can tell them apart, and the page names the values.
"""

from __future__ import annotations

import csv
import json
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, cast

import psycopg
import pyarrow as pa
from psycopg import Connection
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark users call it
from pyspark.sql.types import StructType

import abs_spark
from abs_core.errors import AbsError
from abs_core.model import Wrote
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_spark import change_events
from abs_spark.schema import arrow_schema, spark_schema
from abs_testing.engine import Run
from tests.kit.debezium.avro import decoded
from tests.kit.debezium.feeds import Case, Feed, groups, texts
from tests.kit.debezium.kinds import Kind
from tests.kit.debezium.scenarios import Scenario

ENCODINGS = ("with schema", "without schema", "avro")
CUT = 60
"""So many characters of a lost value are kept."""
EQUAL, REFUSED, LOST, WRONG = "equal", "refused", "lost", "WRONG"


@dataclass(frozen=True)
class Verdict:
    """How the copy of a feed ended.

    Args:
        how: equal; refused by name before anything was written; lost: equal but for values that
            Debezium sent alike; WRONG: anything else.
        why: the error, or the first rows that differ: key, copy, source.
        lost: the values that Debezium did not send, as PostgreSQL writes them, and what it sent.
    """

    how: str
    why: str = ""
    lost: tuple[tuple[str, str], ...] = ()


def options(feed: Feed, encoding: str) -> dict[str, Any]:
    """What the page tells to set for this type and setting of Debezium's."""
    case, given = feed.case, dict[str, Any]()
    if isinstance(case, Scenario):
        given |= case.given
        told = case.bare.get(str(feed.value), {}).get("binary")
        given |= {"binary": told} if told not in (None, "bytes") else {}
    if encoding == "with schema":
        given["schemas"] = True
    if case.setting == "binary" and feed.value != "bytes":
        given["binary"] = feed.value  # a text is a text in the schema
    if case.setting == "unknown" and feed.value == "true":
        given["binary"] = next(g for g in groups() if g["unknown"] == "true")["binary"]
    if encoding == "without schema" and isinstance(case, Scenario):
        given |= case.bare.get(str(feed.value), {})
    elif encoding == "without schema" and isinstance(case, Kind):
        given |= _bare(case, str(feed.value))
    return given


def _bare(kind: Kind, value: str) -> dict[str, Any]:
    if kind.setting == "decimal":
        scaled = re.search(r"numeric\(\d+,(-?\d+)\)", kind.type)
        if value == "precise" and (scaled or kind.type in ("price", "money", "money[]")):
            return {"decimals": value, "scales": {"v": int(scaled[1]) if scaled else 2}}
        return {"decimals": value}
    if kind.setting == "binary":
        return {"binary": value}
    if kind.setting != "time":
        return {}
    named = "time|timestamp" if value == "adaptive" else "timestamp"
    sized = re.fullmatch(rf"(?:{named})\((\d)\)(\[\])?", kind.type)
    coarse = kind.type == "moment" or (sized is not None and int(sized[1]) <= 3)
    told = {"milliseconds": ("v",) if coarse else ()} if value.startswith("adaptive") else {}
    return {"times": value, **told}


def part(feed: Feed, encoding: str, epoch: int) -> pa.Table:
    """The events; without schema in two epochs: what the snapshot found, and what was streamed."""
    if encoding == "avro":
        return decoded(feed)
    if encoding == "with schema":
        return pa.table({"value": feed.wrapped})
    streamed = next(n for n, event in enumerate(feed.bare) if '"op":"r"' not in event)
    return pa.table({"value": feed.bare[streamed:] if epoch else feed.bare[:streamed]})


class Way(Protocol):
    """How changes get from events into a table."""

    def __call__(self, events: pa.Table, told: Mapping[str, Any], sink: Mapping[str, str]) -> None:
        """Read the events as ``debezium`` is told, and write one epoch by a sink with these options."""


class BySpark:
    """As a user does it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, events: pa.Table, told: Mapping[str, Any], sink: Mapping[str, str]) -> None:
        frame = self._spark.createDataFrame(events)
        field = events.schema.field("value")
        metadata = {key.decode(): text.decode() for key, text in (field.metadata or {}).items()}
        frame = frame.select(F.col("value").alias("value", metadata=metadata))
        changes = abs_spark.debezium(frame, **told)
        changes.coalesce(1).write.format("abs-postgres").mode("append").options(**sink).save()


class InProcess:
    """The same reader and the same sink in this process, without Spark's: for thousands of copies."""

    def __call__(self, events: pa.Table, told: Mapping[str, Any], sink: Mapping[str, str]) -> None:
        with _no_column_functions():
            changes = abs_spark.debezium(cast(DataFrame, _Frame(events)), **told)
        assert isinstance(changes, pa.Table)
        given = {name: text for name, text in sink.items() if name not in ("job", "epoch")}
        target = PostgresSink(PostgresOptions.parse(given), changes.schema, co_commit=True)
        run, epoch = Run(target, sink["job"]), int(sink["epoch"])
        writer = run.attempt(epoch).writer
        for batch in changes.to_batches():
            writer.write(batch)
        run.commit(epoch, [Wrote(changes.num_rows, writer.pre_commit())])


class _Frame:
    """What ``debezium`` needs of a DataFrame."""

    def __init__(self, events: pa.Table) -> None:
        self._events = events
        self.schema = spark_schema(events.schema)
        self.columns = events.column_names

    def select(self, *_: object) -> _Frame:
        return self

    def mapInArrow(
        self, read: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], out: StructType
    ) -> pa.Table:
        return pa.Table.from_batches(read(self._events.to_batches()), arrow_schema(out))


@contextmanager
def _no_column_functions() -> Iterator[None]:
    """A column of Spark is made by a JVM, which need not be there."""
    module = cast(Any, change_events)
    real, module.F = module.F, SimpleNamespace(col=str)
    try:
        yield
    finally:
        module.F = real


def copy(
    way: Way,
    url: str,
    feed: Feed,
    encoding: str,
    type: str | None = None,  # noqa: A002
    **given: Any,
) -> Verdict:
    """Copy the feed into a new table, and compare.

    Args:
        type: of the target's column, if it is another than the source's. It must hold all values.
        given: options of ``debezium`` beyond those that the page tells to set.
    """
    table = f"copy_{secrets.token_hex(6)}"
    where = {"url": url, "dbtable": table}
    told = {**options(feed, encoding), "table": where, **given}
    if feed.case.key != ("id",):
        told["key"] = feed.case.key
    operation, position, unchanged = told.get("names", ("op", "lsn", "unchanged"))
    sink = {**where, "job": table, "protocol": "wal", "write": "changes", "positions": "side"}
    sink |= {"sequenceby": position, "unchanged": unchanged}
    sink["applyasdeletes"] = f"{operation}=d"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(feed.case.ddl(table, type))
        truth = feed.truth if type is None else _as(db, feed, table, type)
        header = feed.truth.split("\n", 1)[0].split("\t")
        epochs = 2 if encoding == "without schema" else 1
        for epoch in range(epochs):
            before = texts(db, table)
            try:
                events = part(feed, encoding, epoch)
                way(events, told, {**sink, "epoch": str(epoch)})
            except Exception as error:  # noqa: BLE001 - of many kinds; its text is judged
                why = reason(error)
                rows = (json.loads(text)["after"] or {} for text in feed.bare)
                names = {"op", *header, *(name for row in rows for name in row)}
                named = any(re.search(rf"\b{re.escape(name)}\b", why) for name in names)
                untouched = texts(db, table) == before
                return Verdict(REFUSED if named and untouched else WRONG, why)
        if truth is None:
            return Verdict(WRONG, "the source's values do not fit the target")
        return compared(feed, texts(db, table), truth, encoding)


def _as(db: Connection[Any], feed: Feed, table: str, type: str) -> str | None:  # noqa: A002
    """The source's table in the end, with other types, as PostgreSQL converts them; None: not all."""
    db.execute(feed.case.ddl(f"{table}_truth"))
    with db.cursor().copy(f"copy {table}_truth from stdin (header)") as into:
        into.write(feed.truth)
    db.execute(feed.case.ddl(f"{table}_other", type))
    try:
        db.execute(f"insert into {table}_other select * from {table}_truth")
    except psycopg.Error:
        return None
    return texts(db, f"{table}_other")


def reason(error: Exception) -> str:
    """The first line of the error's text that names what happened; not the traceback."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, AbsError):
        return " ".join(text.split())
    for line in text.splitlines():
        if match := re.search(r"abs_core\.errors\.(\w+: .*)", line):
            return match[1]
    return " ".join(text.split())


def compared(feed: Feed, copy: str, truth: str, encoding: str) -> Verdict:
    """Whether two tables are equal, as pg_dump writes them, but for what was sent alike."""
    if copy == truth:
        return Verdict(EQUAL)
    ours, theirs = _by_key(copy, feed.case), _by_key(truth, feed.case)
    alike = Alike(feed, theirs, encoding)
    wrong, lost = [], {}
    for key in sorted({*ours, *theirs}):
        one, other = ours.get(key), theirs.get(key)
        if one is None or other is None:
            wrong.append(f"{key}: {one} is {other}")
            continue
        for name in other:
            if one[name] == other[name]:
                continue
            if sent := alike.of(key, name, one[name], other[name]):
                lost[other[name]] = sent
            else:
                wrong.append(f"{key} {name}: {one[name][:90]} is {other[name][:90]}")
    if wrong:
        return Verdict(WRONG, "; ".join(wrong[:8]))
    return Verdict(
        LOST, lost=tuple(sorted((value[:CUT], sent[:CUT]) for value, sent in lost.items()))
    )


Rows = Mapping[tuple[str, ...], Mapping[str, str]]


def _by_key(copy: str, case: Case) -> Rows:
    header, *lines = copy.splitlines()
    names = header.split("\t")
    rows = (dict(zip(names, line.split("\t"), strict=True)) for line in lines)
    return {tuple(row[name] for name in case.key): row for row in rows}


class Alike:
    """The values, and the items of arrays, that were sent as another one of the column was.

    Sent alike is what has one text under one schema. What comes in updates only may be the mark of
    a value that Debezium leaves out: it says that the old one stays, and stands for no other.
    """

    def __init__(self, feed: Feed, truth: Rows, encoding: str) -> None:
        self._last: dict[tuple[tuple[str, ...], str], tuple[Any, str]] = {}
        self._meant: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        whole = set[tuple[str, str, str]]()
        for number, text in enumerate(feed.bare):
            event = json.loads(_JAVA.sub("@", text))
            row, schema = event["after"], _schema_of(feed, number, encoding)
            if row is not None and all(name in row for name in feed.case.key):
                key = tuple(str(row[name]) for name in feed.case.key)
                self._last |= {(key, name): (value, schema) for name, value in row.items()}
                if event["op"] != "u":
                    whole |= {(n, json.dumps(value), schema) for n, value in row.items()}
        for (key, name), (sent, schema) in self._last.items():
            if name in truth.get(key, {}) and (name, json.dumps(sent), schema) in whole:
                self._meant[name, json.dumps(sent), schema].add(truth[key][name])
                for item, meant in _items(sent, truth[key][name]):
                    self._meant[f"{name}[]", item, schema].add(meant)

    def of(self, key: tuple[str, ...], name: str, ours: str, theirs: str) -> str:
        """What was sent, if the copy has another value that was sent so; else nothing."""
        sent, schema = self._last.get((key, name), (None, ""))
        meant = self._meant[name, json.dumps(sent), schema]
        if len(meant) > 1 and (ours in meant or ours == _plain(sent)):
            return json.dumps(sent)
        one, other = _items(sent, ours), _items(sent, theirs)
        wrong = [(item, a) for (item, a), (_, b) in zip(one, other, strict=False) if a != b]
        alike = (
            wrong
            and len(one) == len(other)
            and all(self._is_other(f"{name}[]", item, schema, a) for item, a in wrong)
        )
        return json.dumps(sent) if alike else ""

    def _is_other(self, name: str, item: str, schema: str, ours: str) -> bool:
        meant = self._meant[name, item, schema]
        return len(meant) > 1 and ours in meant


def _plain(sent: Any) -> str:
    """An array that was sent without what it holds, as PostgreSQL writes it."""
    nulls = isinstance(sent, list) and all(item is None for item in sent)
    return f"{{{','.join('NULL' for _ in sent)}}}" if nulls else ""


def _schema_of(feed: Feed, number: int, encoding: str) -> str:
    """What an event says beside its values."""
    if encoding == "with schema":
        return feed.wrapped[number].removesuffix(f"{feed.bare[number]}}}")
    return feed.avro[number][1:5].hex() if encoding == "avro" else ""


def _items(sent: Any, text: str) -> list[tuple[str, str]]:
    """Each item of an array of one dimension, as it was sent and as PostgreSQL writes it."""
    if not isinstance(sent, list) or not re.match(r"\{[^{]", text):
        return []
    meant = next(csv.reader([text[1:-1]], escapechar="\\"))
    return [(json.dumps(s), m) for s, m in zip(sent, meant, strict=False)] * (
        len(sent) == len(meant)
    )


_JAVA = re.compile("@[0-9a-f]+")
"""What Debezium sends of inner arrays of text: the address of a Java object."""
