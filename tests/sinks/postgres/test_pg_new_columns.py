"""Columns that the table lacks, through the kit's checks and kills: the decided epochs add them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection

from abs_clients.postgres.address import Address
from abs_clients.postgres.name import TableName
from abs_core.crash import CrashPoint
from abs_core.errors import (
    ContentionError,
    FencedError,
    NotPreparedError,
    RefusedError,
    SchemaError,
)
from abs_core.model import Severity
from abs_services import PostgresService, in_database
from abs_sinks.postgres import PostgresSink, epoch_transaction
from abs_sinks.postgres.apply import newcolumns
from abs_sinks.postgres.columns.create import create_table_statement
from abs_sinks.postgres.columns.plan import CopyPlan
from abs_sinks.postgres.testing import VARIANTS
from abs_testing import SCHEMA, check_sink, run_check
from abs_testing.case import Case, rows
from abs_testing.check_crashes import ForkServer, check_crashes
from abs_testing.checks import CHECKS
from abs_testing.engine import Run
from tests import sample
from tests.fault_proxy.postgres import LossyProxy
from tests.planted import planted
from tests.sinks.postgres.changing import changing
from tests.sinks.postgres.growing import growing

pytestmark = pytest.mark.services


OFTEN = ("wal-append", "2pc-append")
"""Those of the sample: a column is added with an epoch, or before it."""
OF_THE_SAMPLE = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in OFTEN else pytest.mark.campaign) for name in VARIANTS],
)


@pytest.mark.parametrize("number", range(len(OFTEN)), ids=OFTEN)
def test_a_sink_that_adds_a_column_keeps_the_sampled_rules(
    shared_database: str, number: int
) -> None:
    for check in sample.hand(CHECKS, number, len(OFTEN), "new columns"):
        run_check(partial(growing, shared_database, OFTEN[number]), check)


@pytest.mark.campaign
@pytest.mark.parametrize("name", VARIANTS)
def test_a_sink_that_adds_a_column_keeps_the_contract(shared_database: str, name: str) -> None:
    check_sink(partial(growing, shared_database, name))


@OF_THE_SAMPLE
def test_a_crash_leaves_the_shape_of_the_decided_epochs(
    shared_database: str, fork_server: ForkServer, name: str
) -> None:
    points = {
        CrashPoint.AFTER_FIRST_BATCH,
        CrashPoint.AFTER_PRE_COMMIT,
        CrashPoint.INSIDE_CO_COMMIT,
        CrashPoint.AFTER_CO_COMMIT,
        CrashPoint.AFTER_DECIDE,
    }
    assert check_crashes(partial(growing, shared_database, name), fork_server, 2, points).points


def _added_apart(connection: Connection[Any], plans: Sequence[CopyPlan]) -> None:
    for plan in plans:
        newcolumns.add_before(connection, plan)
    connection.execute("begin")


def test_the_checks_find_a_column_that_is_added_outside_of_the_decision(
    shared_database: str,
) -> None:
    bug = epoch_transaction, "add_within", _added_apart
    with growing(shared_database, "wal-append") as table, closing(Case(table)) as case:
        zombie = case.run()
        shares = zombie.tasks(0, rows(0, 2))
        case.run().decided(0)  # a newer run takes over
        with planted(bug, match="not that of its decided epochs"):
            with pytest.raises(FencedError):
                zombie.commit(0, shares)
            table.read()


def test_a_zombie_and_an_undecided_epoch_leave_no_column(shared_database: str) -> None:
    with growing(shared_database, "wal-append") as table:
        case = Case(table)
        zombie = case.run()
        shares = zombie.tasks(0, rows(0, 2))
        successor = case.run()
        successor.decided(0)
        with pytest.raises((FencedError, NotPreparedError)):
            zombie.commit(0, shares)
        assert not table.has_column()
        successor.epoch(0, rows(0, 2))
        case.finished(rows(0, 2), when="after a zombie")
        case.close()


@pytest.mark.parametrize("name", VARIANTS)
def test_tasks_of_one_epoch_add_a_column_together(shared_database: str, name: str) -> None:
    with growing(shared_database, name) as table:
        case = Case(table)
        run = case.run()
        attempts = [run.attempt(0, partition) for partition in range(3)]
        with ThreadPoolExecutor(3) as threads:
            written = threads.map(lambda n: attempts[n].write(*rows(10 * n, 2)), range(3))
            shares = [attempt.pre_commit() for attempt in written]
        assert table.has_column() is not table.at_once
        run.commit(0, shares)
        run.epoch(1, rows(50, 2))
        case.finished(rows(0, 2), rows(10, 2), rows(20, 2), rows(50, 2), when="after new columns")
        case.close()


@pytest.mark.parametrize("name", ["wal-append", "2pc-append"])
def test_a_locked_table_is_an_error_in_bounded_time_and_nothing_changes(
    shared_database: str, name: str
) -> None:
    with growing(shared_database, name) as table, psycopg.connect(shared_database) as reader:
        case = Case(table)
        reader.execute(f"select from {table.table}")  # its transaction stays open
        with pytest.raises(ContentionError, match='adding the columns "value"'):
            case.run().epoch(0, rows(0, 2))
        assert not table.has_column()
        reader.rollback()
        case.run().epoch(0, rows(0, 2))
        case.finished(rows(0, 2), when="after a lock")
        case.close()


def test_a_column_that_someone_else_adds_first_is_an_error_and_the_next_attempt_takes_it(
    shared_database: str,
) -> None:
    with (
        growing(shared_database, "wal-append") as table,
        LossyProxy(shared_database) as proxy,
    ):
        case, sink = Case(table), table.new_sink
        late = f"alter table {table.table} add column value text"
        proxy.before("ALTER TABLE", lambda: table.db.execute(late))
        options = replace(table.options, address=Address.parse(proxy.url))
        table.new_sink = partial(PostgresSink, options, SCHEMA)
        with pytest.raises(SchemaError, match="Someone else has added a column"):
            case.run().epoch(0, rows(0, 2))
        table.new_sink = sink
        case.run().epoch(0, rows(0, 2))
        assert sorted(table.read()) == rows(0, 2)
        case.close()


@pytest.mark.parametrize("protocol", ["wal", "2pc"])
def test_a_role_that_may_not_alter_the_table_gets_the_statement(
    shared_database: str, postgres: PostgresService, protocol: str
) -> None:
    superuser = in_database(postgres.admin_url, urlsplit(shared_database).path.lstrip("/"))
    with growing(shared_database, f"{protocol}-append") as table:
        with psycopg.connect(superuser, autocommit=True) as admin:
            admin.execute(f"alter table {table.table} owner to current_user")
            admin.execute(f"grant select, insert on {table.table} to public")
        try:
            case = Case(table)
            (error,) = [
                finding
                for finding in table.new_sink().preflight("job")
                if finding.severity is Severity.ERROR
            ]
            statement = f'ALTER TABLE "public"."{table.table}" ADD COLUMN "value" text;'
            assert statement in error.remedy
            with pytest.raises(RefusedError) as raised:
                case.run().epoch(0, rows(0, 2))
            assert statement in raised.value.remedy
            case.close()
        finally:
            with psycopg.connect(superuser, autocommit=True) as admin:
                admin.execute(f"drop table {table.table}")


def test_a_column_of_another_type_is_an_error_before_a_row_is_written(
    shared_database: str,
) -> None:
    with growing(shared_database, "wal-append") as table:
        table.db.execute(f"alter table {table.table} add column value int")
        with pytest.raises(SchemaError, match="does not fit integer"):
            table.new_sink().target_id  # noqa: B018


def test_ignored_columns_are_not_written_and_are_named(shared_database: str) -> None:
    with growing(shared_database, "wal-append") as table:
        options = replace(table.options, schemachange="ignore")
        sink = PostgresSink(options, SCHEMA)
        (warning,) = [f for f in sink.preflight("job") if "schemachange=ignore" in f.what]
        assert "not written (schemachange=ignore): value." in warning.what
        Run(sink, "job").epoch(0, rows(0, 3))
        assert table.db.execute(f"select * from {table.table} order by 1").fetchall() == [
            (0,),
            (1,),
            (2,),
        ]
        assert not table.has_column()


ADDED = pa.schema(
    [
        ("small", pa.int16()),
        ("money", pa.decimal128(10, 2)),
        ("moments", pa.timestamp("us", tz="UTC")),
        ("clock", pa.timestamp("us")),
        ("amounts", pa.list_(pa.decimal128(8, 3))),
        ("names", pa.list_(pa.string())),
        ("json", pa.struct([("a", pa.int32())])),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ('A "b"', pa.float32()),
    ]
)
VALUES = {
    "small": 7,
    "money": Decimal("12.50"),
    "moments": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "clock": datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - a wall clock
    "amounts": [Decimal("1.125")],
    "names": ["a", "b"],
    "json": {"a": 1},
    "raw": b"\x00\xff",
    "day": date(2026, 1, 2),
    'A "b"': 0.5,
}


def test_added_columns_have_the_types_of_a_created_table(shared_database: str) -> None:
    types = (
        "select attname, format_type(atttypid, atttypmod) from pg_attribute"
        " where attrelid = %s::regclass and attnum > 0 and attname <> 'id' order by attnum"
    )
    with changing(
        shared_database, "id int default 1", ADDED, write="append", schemachange="add"
    ) as table:
        del table.given["sequenceby"]
        table.apply([tuple(VALUES.values())])
        made = create_table_statement(ADDED, TableName(f"{table.table}_made"))
        table.db.execute(made)
        added = table.db.execute(types, (table.table,)).fetchall()
        assert added == table.db.execute(types, (f"{table.table}_made",)).fetchall()
        table.db.execute(f"drop table {table.table}_made")
        (row,) = table.db.execute(f"select * from {table.table}").fetchall()
        assert row == (1, *VALUES.values())


@pytest.mark.parametrize("positions", ["table", "side"])
@pytest.mark.parametrize("protocol", ["wal", "idempotent"])
def test_changes_add_columns(shared_database: str, protocol: str, positions: str) -> None:
    columns = "id bigint primary key" + (", at bigint" if positions == "table" else "")
    more = {"protocol": protocol, "positions": positions, "schemachange": "add"}
    with changing(shared_database, columns, **more) as table:
        job = table.job()
        job.apply(0, [(1, 1, "c", "a"), (2, 1, "c", "b")], [(1, 2, "u", "A")])
        job.apply(1, [(2, 2, "d", None), (3, 1, "c", "c")])
        assert table.rows("id, v") == [(1, "A"), (3, "c")]


def test_dead_letters_are_judged_with_the_new_column(shared_database: str) -> None:
    with growing(shared_database, "wal-append") as table:
        table.db.execute(f"alter table {table.table} add check (id <> 1)")
        dead = TableName.parse(f"{table.table}_dead")
        options = replace(table.options, deadletter=dead, deadlettermax=1.0)
        Run(PostgresSink(options, SCHEMA), "job").epoch(0, rows(0, 3), rows(10, 2))
        assert sorted(table.read()) == [*rows(0, 1), *rows(2, 1), *rows(10, 2)]
        found = table.db.execute(f'select code, "row"::text from {dead}').fetchall()
        table.db.execute(f"drop table {dead}")
        assert found == [("23514", '{"id":1,"value":"v1"}')]


def test_a_key_that_is_new_is_refused(shared_database: str) -> None:
    with growing(shared_database, "wal-append") as table:
        options = replace(table.options, write="upsert", key=("value",))
        with pytest.raises(SchemaError, match="no unique index on its key"):
            PostgresSink(options, SCHEMA).target_id  # noqa: B018
