"""Records of Debezium: each type under each setting, and what the source's table was in the end."""

from __future__ import annotations

import base64
import json
import lzma
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from abs_testing.case import within
from tests.kit.debezium import recording
from tests.kit.debezium.kinds import KINDS, NAMES, PREPARE, SETTINGS, Kind
from tests.kit.debezium.scenarios import INCREMENTAL, SCENARIOS, Scenario

Case = Kind | Scenario
CASES: tuple[Case, ...] = (*KINDS, *SCENARIOS)
AS_PG_DUMP = (
    "set datestyle = iso; set intervalstyle = postgres;"
    " set extra_float_digits = 3; set timezone = utc"
)
"""What pg_dump sets before it writes values as text; and one zone."""
MARKER = "marker"
FROZEN = Path(__file__).parent / "recorded" / "types.jsonl.xz"


def texts(db: Connection[Any], table: str) -> str:
    """The table's rows as pg_dump writes them, sorted, after a line with the columns' names."""
    db.execute(AS_PG_DUMP)
    with db.cursor().copy(f"copy {table} to stdout (header)") as copy:
        header, *rows = b"".join(bytes(part) for part in copy).decode().splitlines(keepends=True)
    return header + "".join(sorted(rows))


def prepare(db: Connection[Any]) -> frozenset[str]:
    """Make the types that tables use; the extensions that are there, and ``xml`` if it is read."""
    there = {name for (name,) in db.execute("select name from pg_available_extensions")}
    wanted = {kind.needs for kind in KINDS if kind.needs} & there
    for name in wanted:
        db.execute(f"create extension if not exists {name}")
    db.execute(PREPARE)
    with suppress(psycopg.errors.FeatureNotSupported):
        db.execute("select '<a/>'::xml")
        wanted.add("xml")
    return frozenset(wanted)


def record_incremental(url: str, folder: Path) -> None:
    """Add an incremental snapshot, which a row of the signals' table asks for, to what was recorded."""
    case, file = INCREMENTAL, folder / "incremental.jsonl"
    with psycopg.connect(url, autocommit=True) as db:
        for statement in case.before():
            db.execute(statement)
        db.execute("create table signals (id text primary key, type text, data text)")
        with recording(
            url,
            MARKER,
            file,
            name="incremental",
            snapshot_mode="no_data",
            signal_data_collection="public.signals",
            table_include_list=f"public.{MARKER},public.{case.table},public.signals",
            recorder_avro="true",
        ):
            db.execute(f"delete from {MARKER}")
            db.execute(f"update {case.table} set v = 'streamed' where id = 1")
            assert within(180, lambda: "streamed" in file.read_text())
            wanted = json.dumps(
                {"data-collections": [f"public.{case.table}"], "type": "incremental"}
            )
            db.execute("insert into signals values ('one', 'execute-snapshot', %s)", (wanted,))
            assert within(180, lambda: file.read_text().count('"op":"r"') >= 10)
            db.execute(f"update {case.table} set v = 'after' where id = 2")
            db.execute(f"delete from {case.table} where id = 3")
        truth = json.loads((folder / "truth.json").read_text())
        (folder / "truth.json").write_text(json.dumps(truth | {case.name: texts(db, case.table)}))


def groups() -> list[dict[str, str]]:
    """So few groups of settings that each value of each is in one."""
    count = max(map(len, SETTINGS.values()))
    return [
        {name: values[number % len(values)] for name, values in SETTINGS.items()}
        for number in range(count)
    ]


def record(url: str, folder: Path) -> list[str]:
    """Write a file of events for each group of settings, and what the tables were; what is left out.

    Args:
        url: of a superuser of a server with ``wal_level=logical``.
    """
    fast = make_conninfo(url, options="-c synchronous_commit=off")
    with psycopg.connect(fast, autocommit=True) as db:
        extensions = prepare(db)
        there = [case for case in CASES if case.needs is None or case.needs in extensions]
        db.execute(f"create table {MARKER} (id int primary key)")
        for case in there:
            for statement in case.before():
                db.execute(statement)
        with ExitStack() as engines:
            for number, group in enumerate(groups()):
                settings = {NAMES[name].replace(".", "_"): value for name, value in group.items()}
                engines.enter_context(
                    recording(
                        url,
                        MARKER,
                        folder / f"{number}.jsonl",
                        name=f"g{number}",
                        table_include_list="public[.](marker|[st]_.*)",
                        recorder_avro="true",
                        skipped_operations="none",
                        **settings,
                    )
                )
            files = [folder / f"{number}.jsonl" for number in range(len(groups()))]
            assert within(
                180, lambda: all('"snapshot":"last"' in file.read_text() for file in files)
            )
            for case in there:
                for statement in case.after():
                    db.execute(statement)
        truth = {case.name: texts(db, case.table) for case in there}
    (folder / "truth.json").write_text(json.dumps(truth))
    return [case.name for case in CASES if case not in there]


@dataclass(frozen=True)
class Feed:
    """What Debezium sent for a table under one setting.

    Args:
        value: of the setting, or None where no setting changes what is sent.
        wrapped: the events with their schema.
        bare: the same without.
        avro: the same in Confluent's framing.
        schemas: Avro schemas by their ids.
        truth: the source's table in the end, as pg_dump writes it.
    """

    case: Case
    value: str | None
    wrapped: list[str]
    bare: list[str]
    avro: list[bytes]
    schemas: dict[int, str]
    truth: str


def _raw(path: Path) -> tuple[dict[int, str], dict[str, list[tuple[str, str, str]]]]:
    """Avro schemas, and each table's events: with schema, without, Avro."""
    schemas: dict[int, str] = {}
    events: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    decoder = json.JSONDecoder()
    for line in path.open():
        if line.startswith('{"id"'):
            row = json.loads(line)
            schemas[row["id"]] = json.dumps(row["schema"])
            continue
        _, ends = decoder.raw_decode(line, len('{"key": '))
        rest = line[ends + len(', "value": ') :]
        if rest.startswith("null"):
            continue  # a tombstone: the delete before it says the same
        _, ends = decoder.raw_decode(rest)
        wrapped, rest = rest[:ends], rest[ends + len(', "bare": ') :]
        event, ends = decoder.raw_decode(rest)
        bare, avro = rest[:ends], rest[ends + len(', "avro": "') : rest.rindex('"')]
        assert wrapped.endswith(f',"payload":{bare}}}'), "they differ by the schema only"
        events[event["source"]["table"]].append(
            (wrapped.removesuffix(f',"payload":{bare}}}'), bare, avro)
        )
    return schemas, events


def freeze(folder: Path, file: Path) -> None:
    """Pack what ``record`` wrote: each schema once, and each way that a type is sent once."""
    truth = json.loads((folder / "truth.json").read_text())
    names = [*map(str, range(len(groups()))), "incremental"]
    raws = [_raw(folder / f"{name}.jsonl") for name in names]
    with lzma.open(file, "wt", preset=9 | lzma.PRESET_EXTREME) as out:
        numbers: dict[str, int] = {}

        def number_of(text: str) -> int:
            if text not in numbers:
                numbers[text] = len(numbers)
                out.write(json.dumps(["text", text]) + "\n")
            return numbers[text]

        for case in (*CASES, INCREMENTAL):
            if case.name not in truth:
                continue
            for value, number in _ways(case):
                schemas, events = raws[number]
                out.write(json.dumps(["feed", case.name, value, truth[case.name]]) + "\n")
                for wrapped, bare, avro in events[case.table]:
                    framed = base64.b64decode(avro)
                    schema = number_of(schemas[int.from_bytes(framed[1:5], "big")])
                    body = base64.b64encode(framed[5:]).decode()
                    out.write(json.dumps(["event", number_of(wrapped), bare, schema, body]) + "\n")
            if isinstance(case, Kind):
                _same(case, [events[case.table] for _, events in raws[:-1]])


def _ways(case: Case) -> Iterator[tuple[str | None, int]]:
    """The values of the setting that the case depends on, and a group that has each."""
    if case is INCREMENTAL:
        yield None, -1
    elif isinstance(case, Scenario):
        yield from ((group, int(group)) for group in case.groups)
    elif not case.setting:
        yield None, 0
    else:
        for value in SETTINGS[case.setting]:
            yield value, next(n for n, group in enumerate(groups()) if group[case.setting] == value)


def _same(kind: Kind, ways: Sequence[Any]) -> None:
    """No other setting than the kind's own changes what is sent.

    Raises:
        AssertionError: one does.
    """
    sent: dict[str | None, set[str]] = defaultdict(set)
    for group, events in zip(groups(), ways, strict=True):
        rows = [
            (event["op"], event["before"], event["after"])
            for event in (json.loads(bare) for _, bare, _ in events)
        ]
        sent[group.get(kind.setting)].add(
            re.sub("@[0-9a-f]+", "", json.dumps(rows))
        )  # addresses in Java
    if kind.setting != "unknown":
        assert {len(each) for each in sent.values()} == {1}, (
            f"{kind.name}: another setting changes it"
        )


def read(file: Path = FROZEN) -> Iterator[Feed]:
    """The recorded feeds."""
    cases = {case.name: case for case in (*CASES, INCREMENTAL)}
    texts: list[str] = []
    feed: Feed | None = None
    for line in lzma.decompress(file.read_bytes()).splitlines():
        what, *row = json.loads(line)
        if what == "text":
            texts.append(row[0])
        elif what == "feed":
            if feed:
                yield feed
            feed = Feed(cases[row[0]], row[1], [], [], [], {}, row[2])
        else:
            assert feed is not None
            wrapped, bare, schema, body = row
            feed.wrapped.append(f'{texts[wrapped]},"payload":{bare}}}')
            feed.bare.append(bare)
            feed.schemas[schema] = texts[schema]
            feed.avro.append(b"\0" + schema.to_bytes(4, "big") + base64.b64decode(body))
    if feed:
        yield feed
