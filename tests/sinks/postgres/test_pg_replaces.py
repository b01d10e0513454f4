"""Epochs that each hold the whole result: a table's rows are replaced, with the register's change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg
import pytest

from abs_core.errors import OptionError
from abs_core.testing.case import JOB, Case, rows
from abs_core.testing.cuts import Cut, Halted
from abs_core.testing.harness import SCHEMA
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table

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


def test_only_wal_with_the_register_beside_it_replaces() -> None:
    given = {"url": "postgresql://nowhere/db", "dbtable": "t"}
    assert PostgresOptions.parse(given).replacing() is None
    options = PostgresOptions.parse({**given, "protocol": "wal"}).replacing()
    assert options is not None
    with pytest.raises(OptionError, match="register, which lies elsewhere"):
        PostgresSink(options, SCHEMA, co_commit=False)
