"""Records in memory as a third kind of relation, written against the audit's contract alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit import AuditSettings, Files, LeftBehind, Relation, Report, audit
from abs_audit.carry import carried, types_of
from abs_audit.families import Type
from tests.audit.postgres_table import CREATE, Session, target

BY_ID = AuditSettings(key=["id"])

Compare = Callable[..., Report]


@dataclass
class Records(Relation):
    """A table; ``later`` replaces it, one element a read, as writers that come late would."""

    table: pa.Table
    later: list[pa.Table] = field(default_factory=list)
    left: list[LeftBehind] = field(default_factory=list)
    name: str = "records"

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        return types_of(connection.from_arrow(self.table), self.name)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        yield carried(connection.from_arrow(self.table), names)
        if self.later:
            self.table = self.later.pop(0)

    def look(self) -> LeftBehind:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture
def compare() -> Compare:
    """Audit two tables, given as ``pa.Table`` or as dicts of columns."""

    def run(expected: Any, actual: Any, left_behind: Any = None, **options: Any) -> Report:
        settings = AuditSettings(**options)
        return audit(records(expected), records(actual), settings, left_behind=left_behind)

    return run


@pytest.fixture
def records_of() -> Callable[..., Records]:
    return records


def records(given: Any, **fields: Any) -> Records:
    if isinstance(given, Records):
        return given
    return Records(given if isinstance(given, pa.Table) else pa.table(given), **fields)


@pytest.fixture
def session(database: str) -> Iterator[Session]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def expected(session: Session, tmp_path: Path) -> Files:
    """The table as it should be, in a file; made by psycopg, not by the audit's own reader."""
    session.execute(CREATE)
    rows = session.execute("select * from t").fetchall()
    names = ["id", "name", "amount", "at", "day"]
    types = [pa.int64(), pa.string(), pa.float64(), pa.timestamp("us", "UTC"), pa.date32()]
    columns = zip(*rows, strict=True)
    table = pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})
    pq.write_table(table, tmp_path / "expected.parquet")
    return Files((str(tmp_path / "expected.parquet"),))


@pytest.fixture
def audited(database: str, expected: Files) -> Callable[..., Report]:
    def run(**options: Any) -> Report:
        return audit(expected, target(database), BY_ID, **options)

    return run
