"""Epochs that each hold the whole result: a table's rows are replaced, with the register's change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg
import pytest

from abs_core.errors import OptionError, SchemaError
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing.case import JOB, Case, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.harness import SCHEMA
from tests.sinks.postgres.grouped import GROUPED, GroupHarness, TwoTables, open_group

pytestmark = pytest.mark.services


@pytest.fixture
def replaced(shared_database: str) -> Iterator[TableHarness]:
    with open_table(shared_database, VARIANTS["wal-append"]) as harness:
        options = harness.options.replacing()
        assert options is not None
        harness.new_sink = partial(PostgresSink, options, SCHEMA)
        yield harness


def test_an_epoch_takes_the_place_of_all_that_the_table_held(replaced: TableHarness) -> None:
    replaced.db.execute(f"insert into {replaced.table} values (99, 'of before')")
    case = Case(replaced)
    run = case.run()
    run.epoch(0, rows(0, 3), rows(10, 2))
    assert sorted(replaced.read()) == [*rows(0, 3), *rows(10, 2)]
    run.epoch(1, rows(0, 1))
    assert replaced.read() == rows(0, 1)
    run.epoch(1, rows(0, 1))
    assert replaced.read() == rows(0, 1), "an epoch that comes again changes nothing"
    run.epoch(2)
    assert replaced.read() == [], "a result without rows empties the table"
    assert replaced.leftovers(JOB) == []
    case.close()


def test_a_reader_that_has_begun_before_sees_the_rows_of_before(replaced: TableHarness) -> None:
    case = Case(replaced)
    run = case.run()
    run.epoch(0, rows(0, 3))
    with psycopg.connect(replaced.url) as reader:
        reader.execute("set transaction isolation level repeatable read")
        seen = f"select id, value from {replaced.table} order by id"
        before = reader.execute(seen).fetchall()
        run.epoch(1, rows(10, 2))
        assert reader.execute(seen).fetchall() == before == rows(0, 3)
    assert sorted(replaced.read()) == rows(10, 2)
    case.close()


def test_an_epoch_that_was_cut_off_leaves_the_rows_of_before(replaced: TableHarness) -> None:
    case = Case(replaced)
    case.run().epoch(0, rows(0, 3))
    with pytest.raises(Halted):
        case.run(cut=Cut("co_commit")).epoch(1, rows(10, 2))
    assert sorted(replaced.read()) == rows(0, 3)
    case.run().epoch(1, rows(10, 2))
    assert sorted(replaced.read()) == rows(10, 2)
    assert replaced.leftovers(JOB) == []
    case.close()


@pytest.fixture
def two(shared_database: str) -> Iterator[GroupHarness]:
    """Two tables; the second one's ids refer to the first one's."""
    with open_group(shared_database, GROUPED["wal-append"]) as harness:
        harness.db.execute(f"alter table {harness.table} add primary key (id)")
        harness.db.execute(
            f"alter table {harness.second} add foreign key (id) references {harness.table}"
        )
        replacing = [made for options in harness.both if (made := options.replacing())]
        assert len(replacing) == 2
        harness.new_sink = partial(TwoTables, replacing, own_register=True)
        yield harness


def test_tables_that_refer_to_each_other_are_replaced_together(two: GroupHarness) -> None:
    case = Case(two)
    run = case.run()
    run.epoch(0, rows(0, 3), rows(0, 2))
    run.epoch(1, rows(10, 3), rows(10, 1))
    assert sorted(two.read()) == sorted([*rows(10, 3), *rows(10, 1)])
    run.epoch(2, rows(20, 1))  # the second table's result has no row now
    assert two.read() == rows(20, 1)
    case.close()


def test_two_sinks_of_one_table_replace_it_once(shared_database: str) -> None:
    with open_group(shared_database, GROUPED["wal-append"]) as harness:
        options = harness.options.replacing()
        assert options is not None
        harness.new_sink = partial(TwoTables, (options, options), own_register=True)
        case = Case(harness)
        run = case.run()
        run.epoch(0, rows(0, 3), rows(10, 2))
        run.epoch(1, rows(20, 3), rows(30, 2))
        assert sorted(harness.read()) == [*rows(20, 3), *rows(30, 2)]
        case.close()


def test_a_trigger_that_keeps_rows_is_an_error_and_not_a_result_that_is_there_twice(
    replaced: TableHarness,
) -> None:
    case = Case(replaced)
    case.run().epoch(0, rows(0, 3))
    replaced.db.execute(
        "create or replace function keep() returns trigger language plpgsql as"
        " $$ begin return null; end $$"
    )
    replaced.db.execute(
        f"create trigger keep before delete on {replaced.table} for each row execute function keep()"
    )
    with pytest.raises(SchemaError, match="were not deleted"):
        case.run().epoch(1, rows(10, 2))
    assert sorted(replaced.read()) == rows(0, 3)
    case.close()


def test_of_several_rows_of_a_key_the_greatest_is_taken_as_for_upserts() -> None:
    given = {"url": "postgresql://nowhere/db", "dbtable": "t", "protocol": "wal"}
    options = PostgresOptions.parse({**given, "write": "upsert", "key": "id", "orderby": "at"})
    replacing = options.replacing()
    assert replacing is not None
    assert (replacing.key, replacing.orderby) == (("id",), ("at",))


def test_only_wal_with_the_register_beside_it_replaces() -> None:
    given = {"url": "postgresql://nowhere/db", "dbtable": "t"}
    assert PostgresOptions.parse(given).replacing() is None
    options = PostgresOptions.parse({**given, "protocol": "wal"}).replacing()
    assert options is not None
    with pytest.raises(OptionError, match="register, which lies elsewhere"):
        PostgresSink(options, SCHEMA, co_commit=False)
