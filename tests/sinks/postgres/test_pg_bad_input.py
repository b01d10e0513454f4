"""Bad options, roles, tables and rows: typed errors, nothing written, no secret told."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import psycopg
import pyarrow as pa
import pytest

from abs_clients.postgres.address import Address
from abs_clients.postgres.pool import close_idle
from abs_core.contracts import Task
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import (
    AbsError,
    ContentionError,
    PreflightError,
    RefusedError,
    SchemaError,
    TargetWentBackError,
    UnavailableError,
)
from abs_core.model import JobState, Wrote
from abs_core.protocol import RunIdentity
from abs_services import PostgresService
from abs_services.native import NativePostgres
from abs_services.processes import free_port
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing import SCHEMA, batch_of
from abs_testing.case import Case, consent_in, raises, rows

pytestmark = pytest.mark.services


SECRET = "s3cr3t"


TASK = Task("0123456789abcdef", "job", 1, 0, 0, "ab")


LEFT, RIGHT = rows(0, 3), rows(10, 3)


def _change_address(harness: TableHarness, **change: str) -> PostgresSink:
    parameters = {**dict(harness.options.address.parameters), **change}
    address = Address(tuple(sorted(parameters.items())))
    # A writer waits for a server that is away.
    common = replace(harness.options.common, patience=1.0)
    return PostgresSink(replace(harness.options, address=address, common=common), SCHEMA)


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        ({"port": str(free_port())}, UnavailableError, "Cannot connect"),
        ({"host": "no-such-host.invalid"}, UnavailableError, "no-such-host.invalid"),
        ({"password": f"{SECRET}-wrong"}, RefusedError, "password authentication failed"),
        ({"user": "nobody-here"}, RefusedError, "authentication failed"),
        ({"dbname": "not_there"}, RefusedError, "does not exist"),
    ],
)
@pytest.mark.parametrize("use", ["target", "register", "writer", "committer", "preflight"])
def test_a_wrong_address_is_a_typed_error_wherever_it_is_met(
    table: TableHarness,
    change: dict[str, str],
    kind: type[AbsError],
    told: str,
    use: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    table.db.execute("select 1")
    sink = _change_address(table, **{"password": f"{SECRET}-wrong", **change})
    if "password" not in change and "user" not in change:
        password = dict(table.options.address.parameters)["password"]
        sink = _change_address(table, **{"password": password, **change})
    calls: dict[str, Callable[[], object]] = {
        "target": lambda: sink.target_id,
        "register": lambda: sink.register().load("job"),
        "writer": lambda: sink.writer(TASK).write(batch_of(LEFT)),
        "committer": lambda: sink.committer().in_doubt("job"),
        "preflight": lambda: sink.preflight("job"),
    }
    with pytest.raises(kind, match=told) as caught:
        calls[use]()
    everything = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(sink)
    for secret in (SECRET, dict(table.options.address.parameters)["password"]):
        assert secret not in everything


def test_a_missing_table_is_told_with_a_statement_that_makes_it(table: TableHarness) -> None:
    table.db.execute(f"drop table {table.table}")
    with pytest.raises(SchemaError, match="does not exist") as caught:
        _ = PostgresSink(table.options, SCHEMA).target_id
    assert "CREATE TABLE" in caught.value.remedy


def test_a_missing_table_is_created_on_demand_by_tasks_at_once(table: TableHarness) -> None:
    table.db.execute(f"drop table {table.table}")
    table.new_sink = partial(PostgresSink, replace(table.options, createtable=True), SCHEMA)
    case = Case(table)
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after the table was created")
    case.close()


def test_a_role_that_may_not_write_is_refused(
    table: TableHarness, postgres: PostgresService
) -> None:
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        admin.execute("drop role if exists reader")
        admin.execute(f"create role reader login password '{SECRET}'")
    try:
        table.db.execute(f"grant select on {table.table} to reader")
        PostgresSink(table.options, SCHEMA).register().compare_and_set(
            "x", None, _any_state()
        )  # makes the schema
        table.db.execute(f"grant usage on schema {table.schema} to reader")
        writer = _change_address(table, user="reader", password=SECRET).writer(TASK)
        with pytest.raises(RefusedError, match="permission denied") as caught:
            writer.write(batch_of(LEFT))
        writer.abort()
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    finally:
        close_idle()
        table.db.execute(f"revoke all on {table.table} from reader")
        table.db.execute(f"revoke all on schema {table.schema} from reader")
        with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
            admin.execute("drop role reader")


def test_a_session_that_is_read_only_is_refused(table: TableHarness) -> None:
    sink = _change_address(table, options="-cdefault_transaction_read_only=on")
    writer = sink.writer(TASK)
    with pytest.raises(RefusedError, match="read-only"):
        writer.write(batch_of(LEFT))
    writer.abort()


def test_a_table_that_is_altered_under_way_is_looked_at_again(table: TableHarness) -> None:
    case = Case(table)
    run = case.run()
    run.epoch(0, LEFT)
    # A binary COPY of numbers into dates would be taken without a word.
    table.db.execute(
        f"alter table {table.table} alter column id type timestamp using 'epoch'::timestamp"
    )
    attempt = run.attempt(1)
    with pytest.raises(SchemaError, match="altered"):
        attempt.write(*RIGHT)
    attempt.writer.abort()
    with pytest.raises(SchemaError, match='"id"'):
        run.attempt(1).write(*RIGHT)
    assert table.db.execute(f"select count(*) from {table.table}").fetchone() == (3,)
    case.close()


@pytest.mark.parametrize("change", ["numeric", "timestamp using 'epoch'::timestamp"])
def test_rows_staged_for_another_shape_of_the_table_are_not_applied(
    shared_database: str, change: str
) -> None:
    for name in ("wal-append", "wal-append-foreign-register", "idempotent-upsert"):
        with open_table(shared_database, VARIANTS[name]) as harness, Case(harness) as case:
            run = case.run()
            run.epoch(0, [(1, "x")])
            attempt = run.attempt(1).write(*RIGHT)
            harness.db.execute(f"alter table {harness.table} alter column id type {change}")
            with pytest.raises(SchemaError, match="altered"):
                run.commit(1, [attempt.pre_commit()])
            attempt.writer.abort()
            query = f"select count(*) from {harness.table}"
            assert harness.db.execute(query).fetchone() == (1,)
            # The process has noticed: what it does next is planned for the table as it is now.
            if change == "numeric":
                case.run().epoch(1, RIGHT)
                case.finished([(1, "x")], RIGHT, when="after the table was altered")
            else:
                with pytest.raises(SchemaError, match='"id"'):
                    case.run().attempt(1)


FIRST = [(100, "x")]


def test_a_column_that_is_added_meanwhile_is_filled_by_the_server(
    harness: TableHarness, case: Case
) -> None:
    run = case.run()
    run.epoch(0, FIRST)
    attempt = run.attempt(1).write(*LEFT)
    # A row in an open transaction of 2pc holds the table; elsewhere it is altered under the task.
    if case.guarantee.protocol == "2pc":
        run.commit(1, [attempt.pre_commit()])
        harness.db.execute(
            f"alter table {harness.table} add column note text, add level int default 7"
        )
    else:
        harness.db.execute(
            f"alter table {harness.table} add column note text, add level int default 7"
        )
        run.commit(1, [attempt.pre_commit()])
    run.epoch(2, RIGHT)
    case.finished(FIRST, LEFT, RIGHT, when="after columns were added")
    query = f"select count(*) from {harness.table} where note is null and level = 7"
    assert harness.db.execute(query).fetchone() == (1 + len(LEFT) + len(RIGHT),)


def test_a_column_that_is_needed_and_missing_is_told_as_at_a_start(
    harness: TableHarness, case: Case
) -> None:
    run = case.run()
    run.epoch(0, FIRST)
    harness.db.execute(f"alter table {harness.table} add needed int not null default 1")
    harness.db.execute(f"alter table {harness.table} alter needed drop default")
    with pytest.raises(SchemaError, match='"needed" integer NOT NULL has no default') as running:
        run.epoch(1, LEFT)
    with pytest.raises(SchemaError) as starting:
        case.run().attempt(1)
    assert starting.value.what == running.value.what
    assert starting.value.remedy == running.value.remedy
    harness.db.execute(f"alter table {harness.table} alter needed set default 2")
    case.run().epoch(1, LEFT)
    case.finished(FIRST, LEFT, when="after the column got a default")


@pytest.mark.parametrize("name", ["2pc-append", "wal-append", "idempotent-upsert"])
def test_a_table_that_is_dropped_under_way_is_not_created_again_without_a_word(
    shared_database: str, name: str
) -> None:
    with open_table(shared_database, VARIANTS[name]) as harness:
        options = replace(harness.options, createtable=True)
        harness.new_sink = partial(PostgresSink, options, SCHEMA)
        case = Case(harness)
        run = case.run()
        run.epoch(0, LEFT)
        harness.db.execute(f"drop table {harness.table}")
        with pytest.raises(SchemaError, match=r"does not exist|or dropped, since"):
            run.epoch(1, RIGHT)
        told = raises(TargetWentBackError, lambda: case.run().epoch(1, RIGHT))
        case.run(adopt=consent_in(told)).epoch(1, RIGHT)
        case.finished(RIGHT, when="after the table was dropped")
        case.close()


def test_no_room_for_one_more_prepared_transaction_is_told_with_both_remedies(
    table: TableHarness,
) -> None:
    case = Case(table)
    run = case.run()
    (most,) = table.db.execute("show max_prepared_transactions").fetchone() or ("0",)
    run.begin(0)
    for number in range(int(most)):
        table.db.execute("begin")
        table.db.execute("select pg_current_xact_id()")
        table.db.execute(f"prepare transaction 'filler {number}'")
    attempt = run.attempt(0).write(*LEFT)
    with pytest.raises(ContentionError, match="one more") as caught:
        attempt.pre_commit()
    assert "max_prepared_transactions" in caught.value.remedy
    assert "protocol=wal" in caught.value.remedy
    attempt.writer.abort()
    for number in range(int(most)):
        table.db.execute(f"rollback prepared 'filler {number}'")
    run.epoch(0, LEFT)
    case.finished(LEFT, when="after room was made")
    case.close()


def test_without_prepared_transactions_2pc_is_refused_and_wal_works() -> None:
    with NativePostgres(settings={"max_prepared_transactions": "0"}) as server:
        with open_table(server.url, VARIANTS["2pc-append"]) as harness, Case(harness) as case:
            attempt = case.run().attempt(0).write(*LEFT)
            with pytest.raises(PreflightError, match="max_prepared_transactions is 0") as caught:
                attempt.pre_commit()
            assert "protocol=wal" in caught.value.remedy
            attempt.writer.abort()
        with open_table(server.url, VARIANTS["wal-append"]) as harness, Case(harness) as case:
            case.run().epoch(0, LEFT)
            case.finished(LEFT, when="after wal without prepared transactions")


def test_odd_names_of_table_columns_and_schema(shared_database: str) -> None:
    schema = pa.schema([('I"d', pa.int64()), ("select", pa.string()), ("%s {}", pa.int32())])
    batch = pa.record_batch([[1], ["x"], [2]], schema=schema)
    for name in ("2pc-append", "wal-upsert", "idempotent-upsert"):
        with open_table(shared_database, VARIANTS[name]) as harness:
            harness.db.execute(
                'create table "T %s {} ""x"" " ("I""d" bigint primary key, "select" text, "%s {}" int)'
            )
            given = {
                "url": harness.url,
                "dbtable": '"T %s {} ""x"" "',
                "stateschema": 'St "%s" {}',
                "protocol": name.split("-")[0],
            }
            if "upsert" in name:
                given |= {"write": "upsert", "key": '"I""d"'}
            try:
                sink = PostgresSink(PostgresOptions.parse(given), schema)
                _one_epoch(sink, batch)
                found = harness.db.execute('select * from "T %s {} ""x"" "').fetchall()
                assert found == [(1, "x", 2)]
                assert sink.committer().in_doubt("job") == []
            finally:
                harness.db.execute('drop table "T %s {} ""x"" "')
                harness.db.execute('drop schema if exists "St ""%s"" {}" cascade')


def _one_epoch(sink: PostgresSink, batch: pa.RecordBatch) -> None:
    who = RunIdentity("job", "lineage", "run", sink.target_id)
    coordinator = Coordinator(who, sink.register(), sink.committer())
    state, _ = coordinator.begin(0)
    writer = sink.writer(Task(state.register, "job", state.generation, 0, 0, "ab"))
    writer.write(batch)
    share = Wrote(batch.num_rows, writer.pre_commit())
    coordinator.commit(Report(0, [share], None))


def _any_state() -> JobState:
    return JobState("0123456789abcdef", "x", "t", "l", 1, "r")
