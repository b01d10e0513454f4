"""A table to audit, and how its tests read a report."""

from __future__ import annotations

from typing import Any

import psycopg

from abs_audit import PostgresTable, Report
from abs_clients.postgres.address import Address
from abs_clients.postgres.name import TableName
from abs_core.model import HandleName

Session = psycopg.Connection[Any]
HANDLE = HandleName("0123456789abcdef", "job", 1, 7, 0, "a1")

ROWS = 1000
CREATE = """
create table t (id int8, name text, amount float8, at timestamptz, day date);
insert into t select i, nullif('name ' || i, 'name 7'), i / 3.0, to_timestamp(i * 1000.5),
                     date '2024-01-01' + i
  from generate_series(1, 1000) i;
"""


def target(url: str, name: str = "t", **options: Any) -> PostgresTable:
    return PostgresTable(Address.parse(url), TableName.parse(name), **options)


def found(report: Report) -> dict[str, int]:
    kinds = ("missing", "duplicate", "unexpected", "corrupted")
    return {kind: n for kind, n in report.differences.figures().items() if kind in kinds and n}
