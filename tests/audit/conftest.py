"""Records in memory as a third kind of relation, written against the audit's contract alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit import AuditSettings, LeftBehind, Report, audit
from abs_audit.carry import carried, types_of
from abs_audit.families import Type

BY_ID = AuditSettings(key=["id"])

Compare = Callable[..., Report]


@dataclass
class Records:
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
