"""Readers that share no code with the sinks see each row once, partitions and new columns as well."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from abs_sinks.delta import DeltaSink
from abs_sinks.iceberg import IcebergSink
from abs_testing import SCHEMA
from abs_testing.case import Case
from tests.packaging.venvs import python_with
from tests.sinks.delta.harness import TableHarness as DeltaHarness
from tests.sinks.iceberg.harness import TableHarness as IcebergHarness
from tests.sinks.lake.test_lake_columns import Narrow

DUCKDB = (
    "duckdb==1.4.4",
    *(f"duckdb-ext-{name}==1.4.4.20260205" for name in ("delta", "iceberg", "avro")),
)
"""The newest release whose extensions are packages."""

EPOCHS: list[list[Any]] = [
    [(1, "a"), (2, "é /=%:x"), (3, None)],
    [(4, "a"), (5, "__HIVE"), (6, "")],
]


def duckdb_rows(kind: str, harness: Any) -> list[dict[str, Any]]:
    """What DuckDB sees."""
    if kind == "delta":
        return duckdb_at(kind, harness.options.path)
    return duckdb_at(kind, harness.foreign.load_table("db.t").metadata_location)


def duckdb_at(kind: str, place: str, columns: str = "*") -> list[dict[str, Any]]:
    """What DuckDB sees in the table of this folder, or of this metadata file."""
    found: list[dict[str, Any]] = asked_of_duckdb(kind, place, columns)
    return sorted(found, key=lambda row: int(row["id"]))


def asked_of_duckdb(kind: str, place: str, columns: str, *filters: str) -> Any:
    """See ``duckdb_reader``."""
    script = Path(__file__).with_name("duckdb_reader.py")
    place = place.removeprefix("file://")
    asked = [str(python_with(*DUCKDB)), str(script), kind, place, columns, *filters]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("partitionby", [(), ("value",)])
def test_duckdb_reads_each_row_once(
    kind: str, partitionby: tuple[str, ...], tmp_path: Path
) -> None:
    harness: Any = (
        DeltaHarness(str(tmp_path), {}) if kind == "delta" else IcebergHarness(tmp_path, None, {})
    )
    options = replace(harness.options, partitionby=partitionby)
    harness.new_sink = partial(DeltaSink if kind == "delta" else IcebergSink, options, SCHEMA)
    case = Case(harness)
    for number, rows in enumerate(EPOCHS):
        case.run().epoch(number, rows[:1], rows[1:])
    expected = [{"id": id_, "value": value} for rows in EPOCHS for id_, value in rows]
    if kind == "delta" and partitionby:
        # In a partition of Delta an empty text is NULL, by its specification.
        expected[-1]["value"] = None
    assert duckdb_rows(kind, harness) == expected


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_duckdb_reads_a_column_that_came_with_an_epoch(kind: str, tmp_path: Path) -> None:
    narrow = Narrow(kind, tmp_path, {})
    narrow.case("ignore").run().epoch(0, [(1, "left out")])
    narrow.case("add").run().epoch(1, [(2, "b")])
    found = duckdb_rows(kind, narrow.harness)
    assert found == [{"id": 1, "value": None}, {"id": 2, "value": "b"}]
