"""Dead letters of several tables of one database: each in its own table, by the group's transaction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from abs_clients.postgres.name import TableName
from abs_core.model import Dead
from abs_sinks.postgres.testing import VARIANTS
from abs_testing.case import Case, rows
from tests.sinks.postgres.grouped import TwoTables, open_group

pytestmark = pytest.mark.services


@pytest.mark.parametrize(
    "name",
    ["2pc-append", "2pc-append-foreign-register", "wal-append", "wal-append-foreign-register"],
)
def test_each_table_of_a_group_keeps_its_dead_letters(shared_database: str, name: str) -> None:
    with open_group(shared_database, VARIANTS[name]) as harness:
        tables = harness.table, harness.second
        for table in tables:
            harness.db.execute(f"alter table {table} add check (value <> 'bad')")
        first, second = (
            replace(each, deadletter=TableName.parse(f"{table}_dead"))
            for each, table in zip(harness.both, tables, strict=True)
        )
        harness.both = first, second
        harness.new_sink = partial(TwoTables, harness.both, own_register=harness.own_register)
        case = Case(harness)
        bad = [(100, "bad"), (101, "a\0b"), (103, "bad")]
        # Under 2pc a row's id decides on its table, under wal its partition.
        even = [row for row in [*rows(0, 6), *bad] if row[0] % 2 == 0]
        odd = [row for row in [*rows(0, 6), *bad] if row[0] % 2]
        case.run().epoch(0, even, odd)
        case.finished(rows(0, 6), when="after rows that the tables refuse")
        found = [
            harness.db.execute(
                f"select epoch, code, \"row\" ->> 'id' from {table}_dead order by id"
            ).fetchall()
            for table in tables
        ]
        assert [sorted(each) for each in found] == [
            [(0, "23514", "100")],
            [(0, "23514", "103"), (0, "nul-character", "101")],
        ]
        (recent,) = case.run().state().recent
        assert recent.dead == (Dead(0, 4, 1), Dead(1, 5, 2))
        case.close()
        harness.db.execute(f"drop table {tables[0]}_dead, {tables[1]}_dead")
