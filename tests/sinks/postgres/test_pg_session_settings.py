"""No setting of a role, a database or a session changes what is stored."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pytest

from abs_clients.postgres import connection as connections
from abs_clients.postgres.address import Address, Server
from abs_core.errors import AbsError
from tests.sample import seed
from tests.sinks.postgres.copied import copy_in

pytestmark = pytest.mark.services

_SETTINGS = """
select name, vartype, min_val, max_val, enumvals, boot_val from pg_settings
 where context in ('user', 'superuser') and category not like '%%Developer%%'
 order by name
"""

_LEFT_OUT = {
    "role": "another role is another login",
    "session_authorization": "as role",
    "default_transaction_read_only": "the preflight tells it",
    "default_table_access_method": "of tables that are made later",
    "local_preload_libraries": "libraries that are not there",
    "session_preload_libraries": "as before",
    "dynamic_library_path": "as before",
    "shared_memory_type": "of the server",
}
_TEXTS = {
    "DateStyle": ["German", "SQL, DMY", "Postgres, MDY", "ISO, YDM"],
    "TimeZone": ["Pacific/Apia", "America/New_York"],
    "timezone_abbreviations": ["India", "Australia"],
    "search_path": ["public, pg_catalog"],
    "default_text_search_config": ["pg_catalog.german"],
    "client_encoding": ["LATIN1", "SQL_ASCII"],
    "lc_messages": ["C"],
    "lc_monetary": ["C"],
    "lc_numeric": ["C"],
    "lc_time": ["C"],
}

_TABLE = """
create table t (
    n int, i inet, texts text[], numbers int[], doc jsonb, raw bytea, ratio float8, day date,
    at timestamptz, wall timestamp, span interval, clock timetz,
    period tstzrange, place point, words tsvector
)
"""


def batch() -> pa.RecordBatch:
    """Two rows with what a setting may read otherwise: NULL in arrays, quotes, styles, fractions."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "n": n,
                "i": "10.0.0.1/8",
                "texts": ["a", None, "NULL", 'q"\\', "{}"],
                "numbers": [1, 2],
                "doc": '{"a": 1.10, "b": null}',
                "raw": b"\0\\x41\xff",
                "ratio": 0.1 + 0.2,
                "day": 20_000,
                "at": 1_767_225_600_123_456,
                "wall": -1,
                "span": "-1 days +02:03:04.5",
                "clock": "10:11:12.6+02",
                "period": '["2026-01-02 00:00:00+02","2026-02-01 00:00:00Z")',
                "place": "(0.30000000000000004,-2)",
                "words": "'a':1 'b':2",
            }
            for n in range(2)
        ],
        pa.schema(
            [
                ("n", pa.int32()),
                ("i", pa.string()),
                ("texts", pa.list_(pa.string())),
                ("numbers", pa.list_(pa.int32())),
                ("doc", pa.string()),
                ("raw", pa.binary()),
                ("ratio", pa.float64()),
                ("day", pa.date32()),
                ("at", pa.timestamp("us", "UTC")),
                ("wall", pa.timestamp("us")),
                ("span", pa.string()),
                ("clock", pa.string()),
                ("period", pa.string()),
                ("place", pa.string()),
                ("words", pa.string()),
            ]
        ),
    )


def odd_values(row: tuple[Any, ...]) -> list[str]:
    """Values of a setting that are not its usual one."""
    name, kind, least, most, enums, usual = row
    if name in _TEXTS:
        return _TEXTS[name]
    match kind:
        case "bool":
            return ["off" if usual == "on" else "on"]
        case "enum":
            return [each for each in enums if each != usual]
        case "integer" | "real" if not name.endswith("timeout"):
            return [each for each in (least, most) if each != usual]
    return []


class Settings:
    """Writes the batch in sessions of the product's own with one odd setting, and reads it plainly."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reader = psycopg.connect(url, autocommit=True, options="-c TimeZone=UTC")
        self.reader.execute(f"drop table if exists t; {_TABLE}")
        self.usual = self.written("")
        assert len(self.usual) == 2
        self.tried = 0

    def all(self) -> list[tuple[str, str]]:
        rows = self.reader.execute(_SETTINGS).fetchall()
        return [
            (row[0], value) for row in rows if row[0] not in _LEFT_OUT for value in odd_values(row)
        ]

    def written(self, options: str) -> list[tuple[Any, ...]]:
        self.reader.execute("truncate t")
        sign = "&" if "?" in self.url else "?"
        more = f"{sign}options={quote(options)}" if options else ""
        server = Server(Address.parse(self.url + more))
        with contextlib.closing(connections.connect(server)) as session:
            copy_in(session, "t", batch())
            # What the sinks have the server say of a row, for dead letters and digests.
            said = session.execute("select to_jsonb(t)::text from t order by n").fetchall()
        stored = self.reader.execute("select t::text from t order by n").fetchall()
        return [(*one, *_without_zone(other)) for one, other in zip(stored, said, strict=True)]

    def changed(self, settings: list[tuple[str, str]]) -> list[str]:
        """The settings under which something else is stored."""
        found = []
        for name, value in settings:
            shown = value.replace("\\", "\\\\").replace(" ", "\\ ")
            try:
                stored = self.written(f"-c {name}={shown}")
            except AbsError:
                continue  # the server does not allow it, or it was refused
            except psycopg.Error:
                continue
            self.tried += 1
            if stored != self.usual:
                found.append(f"{name}={value}")
        return found


def _without_zone(said: tuple[Any, ...]) -> tuple[str, ...]:
    """The text without moments, which JSON shows in the session's zone."""
    row = json.loads(said[0])
    return (json.dumps({name: each for name, each in row.items() if name not in ("at", "period")}),)


@pytest.fixture
def settings(shared_database: str) -> Iterator[Settings]:
    made = Settings(shared_database)
    yield made
    made.reader.execute("drop table t")
    made.reader.close()


def test_no_setting_that_a_user_may_choose_changes_a_value(settings: Settings) -> None:
    known = settings.all()
    chosen = {*random.Random(seed()).sample(known, 30)}
    named = ("array_nulls", "DateStyle", "IntervalStyle", "bytea_output", "TimeZone")
    chosen |= {each for each in known if each[0] in (*named, "extra_float_digits")}
    assert settings.changed(sorted(chosen)) == []
    assert settings.tried > 30


@pytest.mark.campaign
def test_nor_does_any_other_setting(settings: Settings) -> None:
    known = settings.all()
    assert settings.changed(known) == []
    assert settings.tried > 150


@pytest.mark.parametrize(
    "name", ["array_nulls", "bytea_output", "extra_float_digits", "IntervalStyle"]
)
def test_a_setting_that_is_not_pinned_is_found(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A planted bug: sessions take this one from role and database."""
    monkeypatch.delitem(connections.PINNED, name)
    assert settings.changed([each for each in settings.all() if each[0] == name])
