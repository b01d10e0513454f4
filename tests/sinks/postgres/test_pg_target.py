"""The target's identity is one on every route, and another for another target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from abs_clients.postgres.name import TableName
from abs_clients.postgres.pool import close_idle
from abs_core.errors import AbsError
from abs_services import PostgresService, fresh_database
from abs_sinks.options import Deletes
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.apply.target import resolve
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing import SCHEMA
from abs_testing.case import Case, rows

pytestmark = pytest.mark.services


def _identity(sink: PostgresSink) -> str:
    close_idle()  # what the process has learnt goes, too
    return sink.target_id


def test_it_names_server_database_schema_and_table(table: TableHarness) -> None:
    row = table.db.execute(
        "select system_identifier, current_database(),"
        f" '{table.table}'::regclass::oid::regclass::text, relnamespace::regnamespace::text"
        f" from pg_control_system(), pg_class where oid = '{table.table}'::regclass"
    ).fetchone()
    assert row is not None
    system, database, _, schema = row
    expected = f"postgres:{system}/{database}/{schema}.{table.table}"
    assert _identity(PostgresSink(table.options, SCHEMA)) == expected
    qualified = replace(table.options, dbtable=TableName(table.table, schema))
    assert _identity(PostgresSink(qualified, SCHEMA)) == expected


def test_it_stays_over_a_restart_and_differs_between_databases(
    table: TableHarness, postgres: PostgresService
) -> None:
    before = _identity(PostgresSink(table.options, SCHEMA))
    if postgres.controllable:
        postgres.stop()
        postgres.start()
        table.reconnect()
        assert _identity(PostgresSink(table.options, SCHEMA)) == before
    with fresh_database(postgres) as url, open_table(url, VARIANTS["2pc-append"]) as other:
        assert _identity(PostgresSink(other.options, SCHEMA)) != before


def test_where_the_role_may_not_read_the_systems_id_one_is_minted(
    table: TableHarness, postgres: PostgresService
) -> None:
    admin_url = postgres.admin_url.rpartition("/")[0] + "/" + _database(table)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute("revoke execute on function pg_control_system() from public")
    try:
        minted = _identity(PostgresSink(table.options, SCHEMA))
        assert minted == _identity(PostgresSink(table.options, SCHEMA))
        assert minted.startswith("postgres:")
        case = Case(table)
        case.run().epoch(0, rows(0, 3))
        case.finished(rows(0, 3), when="after an epoch under a minted identity")
        (warning,) = PostgresSink(table.options, SCHEMA).preflight("a new job", 1)
        assert "twice" in warning.what
        case.close()
    finally:
        with psycopg.connect(admin_url, autocommit=True) as admin:
            admin.execute("grant execute on function pg_control_system() to public")


def _database(table: TableHarness) -> str:
    return dict(table.options.address.parameters)["dbname"]


CHANGED = pa.schema(
    [
        ("id", pa.int64()),
        ("value", pa.string()),
        ("more", pa.string()),
        ("op", pa.string()),
        ("at", pa.int64()),
        ("later", pa.int64()),
        ("same", pa.list_(pa.string())),
    ]
)

WAYS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"key": ("id",)},
    "replace": {},
    "changes": {"key": ("id",), "sequenceby": ("at",), "exceptcolumns": ("later", "same", "more")},
}

OTHERS: dict[str, Any] = {
    "dbtable": TableName("other"),
    "key": ("value",),
    "orderby": ("later",),
    "onconflict": "nothing",
    "sequenceby": ("later",),
    "applyasdeletes": Deletes("op", ("x",)),
    "exceptcolumns": ("later", "same"),
    "positions": "side",
    "tombstones": 60.0,
    "unchanged": "same",
    "committedat": "later",
    "schemachange": "ignore",
    "stateschema": "elsewhere",
    "deadletter": TableName("letters"),
}
"""Another value for each option that may say how a table is written to."""

OF_NO_TABLE = {
    "address",
    "common",
    "write",  # each of WAYS
    "batchsize",
    "createtable",
    "locktimeout",
    "connecttimeout",
    "deadlettermax",
    "deadlettercolumns",
}


def _resolved(options: PostgresOptions) -> object:
    try:
        return resolve(options, CHANGED)
    except AbsError as error:
        return type(error), error.what


def _confused(
    options: PostgresOptions,
    resolved: Callable[[PostgresOptions], object] = _resolved,
    forget: Callable[[], None] = close_idle,
) -> Iterator[str]:
    """The options that get, after other options of the same process, another target than alone."""
    ways = {way: replace(options, write=way, **more) for way, more in WAYS.items()}
    pairs = [(a, b, ways[a], ways[b]) for a in ways for b in ways if a != b]
    pairs += [(w, n, ways[w], replace(ways[w], **{n: OTHERS[n]})) for w in ways for n in OTHERS]
    for way, other, first, second in pairs:
        forget()
        alone = resolved(second)
        forget()
        resolved(first)
        if resolved(second) != alone:
            yield f"{way} then {other}"


@pytest.fixture
def changed(table: TableHarness) -> Iterator[PostgresOptions]:
    columns = (
        "id bigint primary key, value text unique, more text, op text, at bigint, later bigint"
    )
    table.db.execute(
        f"drop table {table.table}; create table {table.table} ({columns}, same text[])"
    )
    table.db.execute(f"create table other ({columns}, same text[])")
    yield table.options
    table.db.execute(
        "drop table other; drop table if exists letters; drop schema if exists elsewhere"
    )


def test_what_a_process_remembers_of_a_table_is_for_the_same_options_only(
    changed: PostgresOptions,
) -> None:
    assert {field.name for field in fields(PostgresOptions)} == {*OTHERS, *OF_NO_TABLE}
    assert [*_confused(changed)] == []


def test_a_planted_memory_that_forgets_the_way_of_writing_is_found(
    changed: PostgresOptions,
) -> None:
    answers: dict[PostgresOptions, object] = {}

    def forgetful(options: PostgresOptions) -> object:
        key = replace(options, write="append")
        if key not in answers:
            answers[key] = _resolved(options)
        return answers[key]

    confused = [*_confused(changed, forgetful, answers.clear)]
    assert "append then replace" in confused
