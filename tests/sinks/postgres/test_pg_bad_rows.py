"""Rows that the table refuses: errors that name what is wrong, and nothing of the epoch is there."""

from __future__ import annotations

import traceback
from dataclasses import replace
from functools import partial

import pytest

from abs_core.errors import (
    DataError,
    RefusedError,
    RowError,
)
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing import SCHEMA
from abs_testing.case import Case, rows

pytestmark = pytest.mark.services


LEFT, RIGHT = rows(0, 3), rows(10, 3)
UPSERTS = ["wal-upsert", "wal-upsert-foreign-register", "idempotent-upsert"]


def test_a_row_that_does_not_fit_is_an_error_and_nothing_of_the_epoch_is_there(
    case: Case,
) -> None:
    attempt = case.run().attempt(0).write(*LEFT)
    with pytest.raises(RowError, match="value"):
        attempt.write((7, "a\0b"))
    attempt.writer.abort()
    case.run().epoch(0, RIGHT)
    case.finished(RIGHT, when="after a row that does not fit")


def test_a_violated_constraint_is_an_error_that_names_it(harness: TableHarness) -> None:
    harness.db.execute(
        f"alter table {harness.table} add constraint short check (length(value) < 9)"
    )
    case = Case(harness)
    run = case.run()
    value = "personal" * 3
    with pytest.raises(RefusedError, match="short") as caught:
        run.epoch(0, [(1, value)])
    assert value not in "".join(traceback.format_exception(caught.value))
    case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after a violated constraint")
    case.close()


def test_a_row_that_the_server_refuses_in_the_copy_is_counted_out_and_not_shown(
    table: TableHarness,
) -> None:
    table.db.execute(f"alter table {table.table} add check (length(value) < 9)")
    case = Case(table)
    attempt = case.run().attempt(0).write(*LEFT)
    value = "personal" * 3
    with pytest.raises(RefusedError, match=rf"row {len(LEFT) + 2} of the task's share") as caught:
        attempt.write((70, "short"), (71, value)).pre_commit()
    assert value not in "".join(traceback.format_exception(caught.value))
    attempt.writer.abort()
    case.close()


@pytest.mark.parametrize("name", ["2pc-append", "wal-append", "wal-append-foreign-register"])
def test_what_a_deferred_constraint_refuses_is_never_decided(
    shared_database: str, name: str
) -> None:
    with open_table(shared_database, VARIANTS[name]) as harness, Case(harness) as case:
        harness.db.execute(
            f"alter table {harness.table} add constraint late unique (id)"
            " deferrable initially deferred"
        )
        with pytest.raises(RefusedError, match="late"):
            case.run().epoch(0, [(1, "a"), (1, "b")])
        case.run().epoch(0, LEFT)
        case.finished(LEFT, when="after a deferred constraint refused an epoch")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("perform pg_notify('c', 'x')", "NOTIFY"),
        ("create temporary table if not exists seen (id int)", "temporary"),
    ],
)
def test_a_trigger_that_cannot_be_prepared_is_refused_and_wal_takes_it(
    table: TableHarness, body: str, told: str
) -> None:
    name = f"{table.table}_touch"
    table.db.execute(
        f"create function {name}() returns trigger language plpgsql as"
        f" $$ begin {body}; return new; end $$"
    )
    table.db.execute(
        f"create trigger touch before insert on {table.table}"
        f" for each row execute function {name}()"
    )
    try:
        case = Case(table)
        attempt = case.run().attempt(0).write(*LEFT)
        with pytest.raises(RefusedError, match=told) as caught:
            attempt.pre_commit()
        assert "protocol=wal" in caught.value.remedy
        attempt.writer.abort()
        common = replace(table.options.common, protocol="wal")
        table.new_sink = partial(PostgresSink, replace(table.options, common=common), SCHEMA)
        case = Case(table)
        case.run().epoch(0, LEFT)
        case.finished(LEFT, when="after the same job with protocol=wal")
        case.close()
    finally:
        table.db.execute(f"drop function {name} cascade")


@pytest.mark.parametrize("name", UPSERTS)
def test_a_key_that_comes_twice_in_one_task_is_an_error_that_names_it(
    shared_database: str, name: str
) -> None:
    with open_table(shared_database, VARIANTS[name]) as harness, Case(harness) as case:
        run = case.run()
        with pytest.raises(DataError, match=r'\("id"\): \(7\) appears 2 times') as caught:
            run.epoch(0, [(7, "a"), (8, "b"), (7, "c")])
        assert "orderby" in caught.value.remedy
        case.hides_all("after a key that came twice")
        if harness.own_register:
            case.run().epoch(0, LEFT)
            case.finished(LEFT, when="after the input was corrected")


@pytest.mark.parametrize("name", UPSERTS)
def test_keys_that_a_trigger_makes_equal_are_an_error_that_says_so(
    shared_database: str, name: str
) -> None:
    with open_table(shared_database, VARIANTS[name]) as harness:
        harness.db.execute(
            f"create function {harness.table}_even() returns trigger language plpgsql as"
            " $$ begin new.id := new.id / 2 * 2; return new; end $$;"
            f"create trigger even before insert on {harness.table}"
            f" for each row execute function {harness.table}_even()"
        )
        try:
            case = Case(harness)
            with pytest.raises(DataError, match="takes them for the same row") as caught:
                case.run().epoch(0, [(6, "a"), (7, "b")])
            assert "trigger" in caught.value.remedy
            case.hides_all("after keys that became equal")
            case.close()
        finally:
            harness.db.execute(f"drop function {harness.table}_even cascade")


def test_a_key_that_comes_twice_in_two_tasks_is_an_error_under_wal(shared_database: str) -> None:
    with open_table(shared_database, VARIANTS["wal-upsert"]) as harness, Case(harness) as case:
        with pytest.raises(DataError, match="appears 2 times"):
            case.run().epoch(0, [(7, "a")], [(7, "c")])
        case.hides_all("after a key that came twice")
        case.run().epoch(0, LEFT)
        case.finished(LEFT, when="after the input was corrected")


@pytest.mark.parametrize("name", UPSERTS)
def test_with_orderby_the_greatest_row_of_a_key_wins(shared_database: str, name: str) -> None:
    with open_table(shared_database, VARIANTS[name]) as harness:
        options = replace(harness.options, orderby=("VALUE",))
        co_commit = VARIANTS[name].own_register
        harness.new_sink = partial(PostgresSink, options, SCHEMA, co_commit=co_commit)
        case = Case(harness)
        run = case.run()
        run.epoch(0, [(7, "b"), (8, "x"), (7, "c"), (7, "a")], [(9, "y")])
        run.epoch(1, [(7, "a2"), (7, "a1")])
        case.finished([(7, "a2"), (8, "x"), (9, "y")], when="after keys that came several times")
        case.close()


def test_a_trigger_that_swallows_rows_does_not_stop_the_epoch(harness: TableHarness) -> None:
    name = f"{harness.table}_odd"
    harness.db.execute(
        f"create function {name}() returns trigger language plpgsql as"
        " $$ begin if new.id % 2 = 0 then return null; end if; return new; end $$"
    )
    harness.db.execute(
        f"create trigger odd before insert on {harness.table}"
        f" for each row execute function {name}()"
    )
    try:
        case = Case(harness)
        case.run().epoch(0, LEFT, RIGHT)
        odd = [row for row in (*LEFT, *RIGHT) if row[0] % 2]
        case.finished(odd, when="after a trigger swallowed rows")
        case.close()
    finally:
        harness.db.execute(f"drop function {name} cascade")
