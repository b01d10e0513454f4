"""Debezium's engine on a PostgreSQL server with ``wal_level=logical``: for the campaign, and to record.

Its jars come by Maven, once (68 files, 38 MB); the feeds of ``tests/spark/debezium`` were recorded by
``python -m tests.kit.debezium URL FOLDER``.
"""

from __future__ import annotations

import gzip
import hashlib
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from platformdirs import user_cache_path
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict

from abs_core.errors import ConfigError
from abs_testing.case import within

HERE = Path(__file__).parent
TABLE = """
create table {} (id int primary key, s int2, l int8, price numeric(12,2), r real, d double precision,
 ok boolean, name text, code varchar(20), raw bytea, day date, ts timestamp, ms timestamp(3),
 at timestamptz, span interval, u uuid, doc jsonb, nums int[], tags text[], big text, clock time)
"""
VALUES: Mapping[str, tuple[Any, ...]] = {
    "s": (None, -32768, 7, 32767),
    "l": (None, -(2**63), 0, 2**63 - 1),
    "price": (None, "0.00", "-12.34", "9999999999.99", "1.50"),
    "r": (None, 0.1, -2.5, 1e10),
    "d": (None, 0.1, 1e300, -0.0, 3.0),
    "ok": (None, True, False),
    "name": (None, "", "plain", 'quo"te\\', "é中😀", "line\nbreak"),
    "code": (None, "a", "b"),
    "raw": (None, b"", b"\x00\xff\x10", b"abc"),
    "day": (None, "2024-02-29", "1969-12-31", "0099-01-01", "9999-12-31"),
    "ts": (None, "2024-02-29 12:34:56.789012", "1969-12-31 23:59:59.999999"),
    "ms": (None, "2024-02-29 12:34:56.789"),
    "at": (None, "2024-02-29 12:34:56.789012+02", "1900-01-01 00:00:00+00"),
    "span": (None, "3 days 04:05:06.7", "-1 hours"),
    "u": (None, "6f1e4b0a-1111-4222-8333-444455556666"),
    "doc": (None, '{"a": [1, 2.50, "x"]}', "null"),
    "nums": (None, [], [1, None, -3], [7]),
    "tags": (None, [], [None], ["a", "b c", 'q"']),
    "big": (None, "small", "large"),
    "clock": (None, "12:34:56.789012"),
}
LARGE = 9000
"""Characters that compression does not bring below what PostgreSQL stores beside the row."""


LAST = -1
"""The key of the last row, which tells that all changes have been sent."""


def change(db: Connection[Any], table: str, keys: int, rng: random.Random, *, full: bool) -> None:
    """One random insert, update, delete or change of a key.

    Args:
        full: whether whole rows are sent. Else a changed key sets large values, too: Debezium would
            not send them, and the row of the new key would be without them.
    """
    row = {name: rng.choice(values) for name, values in VALUES.items()}
    if row["big"] == "large":
        row["big"] = "".join(rng.choices("abcdefgh0123456789", k=LARGE))
    key, how = rng.randrange(keys), rng.random()
    if how < 0.3:
        names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
        insert = f"insert into {table} (id, {names}) values (%s, {marks}) on conflict do nothing"
        db.execute(insert, (key, *row.values()))
    elif how < 0.5:
        few = f"update {table} set s = %s, name = %s where id = %s"
        db.execute(few, (row["s"], row["name"], key))
    elif how < 0.7:
        names = ", ".join(f"{name} = %s" for name in row)
        db.execute(f"update {table} set {names} where id = %s", (*row.values(), key))
    elif how < 0.85:
        db.execute(f"delete from {table} where id = %s", (key,))
    else:
        big = "big" if full else "%(big)s"
        free = (
            f"update {table} set id = %(other)s, big = {big} where id = %(key)s"
            f" and not exists (select from {table} where id = %(other)s)"
        )
        other = rng.randrange(keys)
        db.execute(free, {"key": key, "other": other, "big": row["big"]})


def installed() -> Path:
    """The folder of the jars and the compiled recorder.

    Raises:
        ConfigError: Maven or a compiler is missing, or Maven could not fetch the jars.
    """
    sources = [HERE / name for name in ("pom.xml", "Recorder.java")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder = user_cache_path("abs-sinks") / f"debezium-3.6.1-{digest[:12]}"
    if (folder / "Recorder.class").exists():
        return folder
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            raise ConfigError(f"Debezium needs {tool}.", remedy="install a JDK and Maven.")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "pom.xml", folder)
    fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    compiling = ["javac", "-cp", "lib/*", "-d", ".", str(HERE / "Recorder.java")]
    for command in (fetch, compiling):
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise ConfigError(
                f"{command[0]} failed: {ended.stdout[-500:]}{ended.stderr[-500:]}",
                remedy="look at its message.",
            )
    return folder


@contextmanager
def recording(url: str, table: str, file: Path, **settings: str) -> Iterator[None]:
    """Debezium writes the table's changes to the file, first what is there, until the block ends.

    Args:
        url: of a superuser.
        table: a row of it, whose columns may all be NULL, ends the recording. More tables: by
            ``table_include_list``.
        settings: of Debezium, with ``_`` for ``.``. ``name``: of the slot, where several record one
            table.
    """
    folder, parts = installed(), conninfo_to_dict(url)
    name = settings.pop("name", table)
    given = {
        "name": "recorder",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "plugin.name": "pgoutput",
        "database.hostname": str(parts.get("host")),
        "database.port": str(parts.get("port")),
        "database.user": str(parts.get("user")),
        "database.password": str(parts.get("password", "none")),
        "database.dbname": str(parts.get("dbname")),
        "topic.prefix": "db",
        "table.include.list": f"public.{table}",
        "slot.name": f"slot_{name}",
        "publication.name": f"publication_{name}",
        "slot.drop.on.stop": "true",
        "publication.autocreate.mode": "filtered",
    } | {setting.replace("_", "."): value for setting, value in settings.items()}
    command = ["java", "-cp", f"{folder}/lib/*:{folder}", "Recorder", str(file)]
    command += [f"{setting}={value}" for setting, value in given.items()]
    with (
        file.with_suffix(".log").open("wb") as log,
        psycopg.connect(url, autocommit=True) as db,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log
        ) as java,
    ):
        try:
            active = "select from pg_replication_slots where slot_name = %s and active"
            slot = (f"slot_{name}",)
            assert within(180, lambda: db.execute(active, slot).fetchone() is not None)
            yield
            db.execute(f"insert into {table} (id) values ({LAST}) on conflict do nothing")
            assert within(180, lambda: f'"after":{{"id":{LAST}' in file.read_text()), (
                file.with_suffix(".log").read_text()[-2000:]
            )
        finally:
            assert java.stdin is not None
            java.stdin.close()
            try:
                java.wait(60)
            except subprocess.TimeoutExpired:
                java.kill()


_BARE = {"value_converter_schemas_enable": "false", "converter_schemas_enable": "false"}
FEEDS: Mapping[str, Mapping[str, str]] = {
    "bare": _BARE,
    "full": _BARE,
    "wrapped": {
        "decimal_handling_mode": "string",
        "interval_handling_mode": "string",
        "time_precision_mode": "microseconds",
    },
}
"""Settings of the recorded feeds: Debezium's defaults, of whole rows, too, and the other way."""


def record(url: str, folder: Path, feed: str, changes: int = 260, keys: int = 25) -> None:
    """Write ``<feed>.jsonl.gz``, and the table's rows in the end to ``<feed>.csv.gz``."""
    rng, lines = random.Random(feed), folder / f"{feed}.jsonl"
    full = feed == "full"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("drop table if exists recorded")
        db.execute(TABLE.format("recorded"))
        if full:
            db.execute("alter table recorded replica identity full")
        for _ in range(changes // 5):
            change(db, "recorded", keys, rng, full=full)
        with recording(url, "recorded", lines, **FEEDS[feed]):
            for _ in range(changes):
                change(db, "recorded", keys, rng, full=full)
        with db.cursor().copy(
            "copy (select * from recorded order by id) to stdout (format csv, header)"
        ) as copy:
            rows = b"".join(bytes(part) for part in copy)
    (folder / f"{feed}.csv.gz").write_bytes(gzip.compress(rows, mtime=0))
    (folder / f"{feed}.jsonl.gz").write_bytes(gzip.compress(lines.read_bytes(), mtime=0))
    lines.unlink()
