"""Batches that are copied into a table and read back: what tests of the encoders share."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pyarrow as pa
import pytest
from psycopg.types.json import set_json_loads

from abs_clients.postgres.name import TableName
from abs_sinks.postgres.columns.plan import plan_columns
from abs_sinks.postgres.columns.table import read_table

Connection = psycopg.Connection[Any]


def naive(*parts: int) -> dt.datetime:
    """A wall clock without a zone: what TIMESTAMP_NTZ and timestamp are."""
    return dt.datetime(*parts, tzinfo=None)  # type: ignore[arg-type,misc]  # noqa: DTZ001


UTC, NEW_YORK = dt.UTC, ZoneInfo("America/New_York")
MOMENT, NAIVE, US = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.duration("us")
MONTHS = pa.month_day_nano_interval()


@contextmanager
def session(url: str) -> Iterator[Connection]:
    """An empty database, in a session of styles that no text form may depend on."""
    odd = "-c DateStyle=SQL,DMY -c IntervalStyle=sql_standard -c TimeZone=Asia/Kolkata"
    with psycopg.connect(url, autocommit=True, options=odd) as made:
        made.execute("drop owned by current_user cascade")
        set_json_loads(lambda text: json.loads(text, parse_float=Decimal), made)
        yield made


def copy_in(connection: Connection, table: str, *batches: pa.RecordBatch) -> str:
    """Copy batches into a table, by the plan; returns the format of the COPY."""
    plan = plan_columns(batches[0].schema, read_table(connection, TableName.parse(table)))
    encoder = plan.encoder()
    with connection.cursor().copy(plan.copy_statement()) as copy:
        copy.write(encoder.header())
        for batch in batches:
            copy.write(encoder.encode(batch))
        copy.write(encoder.finish())
    return plan.format


def stored(
    connection: Connection, values: pa.Array, declared: str, read: str = "v", how: str = "binary"
) -> list[Any]:
    """Write values into a column of that type and read them back through an SQL expression."""
    connection.execute(f"drop table if exists t; create table t (n bigint, v {declared}, x inet)")
    columns = {"n": pa.array(range(len(values))), "v": values}
    if how == "text":  # an inet column has no other way
        columns["x"] = pa.array(["::1"] * len(values))
    else:
        connection.execute("alter table t drop column x")
    assert copy_in(connection, "t", pa.record_batch(columns)) == how
    # Binary results: floats in full, and no style of the session matters.
    rows = connection.execute(f"select {read} from t order by n", binary=True)
    return [row[0] for row in rows]


BOTH = pytest.mark.parametrize("how", ["binary", "text"])

EXACT = Context(prec=100)


def scaled(whole: int, scale: int) -> Decimal:
    """whole / 10**scale, with all its digits."""
    return EXACT.scaleb(Decimal(whole), -scale)
