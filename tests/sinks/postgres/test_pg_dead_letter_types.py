"""Rows that the server makes dead letters of read back as what was written, in every type."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest

from abs_sinks.deadletters.letter import schema_of
from abs_sinks.deadletters.row import rows_of
from abs_sinks.postgres import PostgresSink
from abs_testing.case import Case
from tests.sinks.postgres.buried import buried

pytestmark = pytest.mark.services
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 5, dt.UTC)
COLUMNS = {
    "id": ("bigint", pa.array([1])),
    "n": ("numeric(20,3)", pa.array([Decimal("1.200")], pa.decimal128(20, 3))),
    "f": ("float8", pa.array([0.1])),
    "z8": ("float8", pa.array([-0.0])),
    "z4": ("real", pa.array([-0.0], pa.float32())),
    "za": ("float8[]", pa.array([[-0.0, None, 0.0]])),
    "nan": ("real", pa.array([float("inf")], pa.float32())),
    "t": ("text", pa.array(['ü"\\'])),
    "b": ("bytea", pa.array([b"\0\xff"])),
    "d": ("date", pa.array([dt.date(1, 1, 1)])),
    "z": ("timestamptz", pa.array([NOON], pa.timestamp("us", "UTC"))),
    "l": ("timestamp", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us"))),
    "c": ("time", pa.array([dt.time(1, 2, 3, 4)], pa.time64("us"))),
    "midnight": ("time", pa.array([86_400_000_000], pa.time64("us"))),
    "iv": ("interval", pa.array([(14, -2, 3_000_000)], pa.month_day_nano_interval())),
    "du": ("interval", pa.array([-90_000_000_001], pa.duration("us"))),
    "least": ("interval", pa.array([-(2**63)], pa.duration("us"))),
    "far": ("date", pa.array([2_000_000_000], pa.date32())),
    "u": ("uuid", pa.array(["00112233-4455-6677-8899-aabbccddeeff"])),
    "ub": ("uuid", pa.array([bytes(range(16))])),
    "a": ("text[]", pa.array([["x", None]])),
    "s": ("jsonb", pa.array([{"x": 1, "y": "q"}])),
    "yes": ("boolean", pa.array([True])),
    "null": ("integer", pa.array([None], pa.int32())),
}


@pytest.mark.parametrize("name", ["wal-append", "2pc-append"])
def test_a_row_that_the_server_refuses_reads_back(shared_database: str, name: str) -> None:
    batch = pa.record_batch({column: values for column, (_, values) in COLUMNS.items()})
    with buried(shared_database, name) as harness:
        declared = ", ".join(f'"{column}" {kind}' for column, (kind, _) in COLUMNS.items())
        harness.db.execute(
            f"drop table {harness.table}; create table {harness.table} ({declared}, check (id <> 1))"
        )
        options = replace(harness.options)
        harness.new_sink = partial(PostgresSink, options, batch.schema)
        case = Case(harness)
        run = case.run()
        attempt = run.attempt(0)
        attempt.writer.write(batch)
        attempt._rows = 1
        run.commit(0, [attempt.pre_commit()])
        query = f'select code, "row"::text, schema from {harness.dead}'
        ((code, row, schema),) = harness.db.execute(query).fetchall()
        read = rows_of([row], schema_of(schema))
        assert code == "23514"
        for column in COLUMNS:
            assert read.column(column).equals(batch.column(column)), column
            # For Arrow the two zeros are equal.
            assert str(read.column(column)) == str(batch.column(column)), column
        case.close()
