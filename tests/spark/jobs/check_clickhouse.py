"""Checks the recipe of ClickHouse by ``check_once``, where chDB is installed; prints the rules.

python check_clickhouse.py
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from abs_testing import OwnTarget, check_once
from tests.spark.jobs.own_write import recipe

SCHEMA = pa.schema([("account", pa.int64()), ("amount", pa.int64())])


@dataclass(frozen=True)
class Frame:
    """What the recipe asks of a DataFrame, of rows that have each account once."""

    rows: pa.Table

    def groupBy(self, *columns: str) -> Frame:
        return self

    def agg(self, sums: dict[str, str]) -> Frame:
        return self

    def limit(self, count: int) -> Frame:
        return Frame(self.rows[:count])

    def toDF(self, *names: str) -> Frame:
        return self

    def toArrow(self) -> pa.Table:
        return self.rows


@contextmanager
def opened() -> Iterator[OwnTarget]:
    session: Any = importlib.import_module("chdb.session").Session
    with tempfile.TemporaryDirectory() as folder:
        write, applied = recipe("clickhouse_insert", folder)
        assert applied is not None

        def read() -> str:
            db = session(folder)
            try:
                return str(db.query("SELECT * FROM balances ORDER BY account"))
            finally:
                db.close()

        yield OwnTarget(write, applied, read)


if __name__ == "__main__":
    batches = [{"account": [1, 2], "amount": [10, 20]}, {"account": [1], "amount": [5]}]
    print(check_once(opened, [Frame(pa.table(batch, schema=SCHEMA)) for batch in batches]))
