"""The entry of a data file: a durable format, which lies in handles."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType

from abs_clients.iceberg.entries import Entries, added, file_schema

GOLDEN = Path(__file__).parents[1] / "golden" / "formats" / "iceberg-entry.txt"

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "day", DateType()),
    NestedField(3, "amount", DecimalType(9, 2)),
    NestedField(4, "text", StringType()),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "day"),
    PartitionField(4, 1001, IdentityTransform(), "text"),
)


@pytest.fixture
def metadata() -> TableMetadata:
    return new_table_metadata(COLUMNS, SPEC, UNSORTED_SORT_ORDER, "file:///w/t", {})


def written(metadata: TableMetadata, folder: Path) -> str:
    """The entry of a file with one row."""
    names = pa.schema([(name, pa.null()) for name in ("id", "day", "amount", "text")])
    schema = file_schema(metadata.schema(), names)
    row = {"id": 7, "day": date(2026, 11, 28), "amount": None, "text": "a"}
    table = pa.Table.from_pylist([row], schema)
    pq.write_table(table, folder / "f.parquet", compression="none")
    entries = Entries(metadata)
    [batch] = table.to_batches()
    head = pa.record_batch(entries.partitions.values(batch), names=["0", "1"])
    return entries.entry(pq.read_metadata(folder / "f.parquet"), head)


def told(entry: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(zlib.decompress(b64decode(entry)))
    return value


def test_an_entry_is_written_as_its_golden_file_is(metadata: TableMetadata, tmp_path: Path) -> None:
    """By its content: releases of zlib and of Arrow write other bytes for it."""
    made, golden = told(written(metadata, tmp_path)), told(GOLDEN.read_text())
    for value in (made, golden):
        assert len(value.pop("split_offsets")) == 1
        assert sorted(value.pop("column_sizes")) == ["1", "2", "3", "4"]
    assert made == golden


def test_an_entry_of_the_golden_file_is_read(metadata: TableMetadata) -> None:
    found = added(GOLDEN.read_text(), "file:///w/t/data/f", 99, 1, metadata)
    assert (found.spec.spec_id, found.schema.schema_id) == (0, 0)
    assert list(found.file.partition._data) == [20785, "a"]
    assert (found.file.record_count, found.file.file_size_in_bytes) == (1, 99)
    assert found.file.null_value_counts == {1: 0, 2: 0, 3: 1, 4: 0}
    assert found.file.lower_bounds[1] == (7).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda value: value | {"version": 2}, "version"),
        (lambda value: {k: v for k, v in value.items() if k != "spec"}, "no field 'spec'"),
        (lambda value: value | {"partition": ["!", None]}, "a value of its partition"),
        (lambda value: value | {"partition": []}, r"zip\(\)"),
    ],
)
def test_a_damaged_entry_is_refused(damage: Any, why: str, metadata: TableMetadata) -> None:
    text = json.dumps(damage(told(GOLDEN.read_text())))
    with pytest.raises(ValueError, match=why):
        added(b64encode(zlib.compress(text.encode())).decode(), "f", 1, 1, metadata)


@pytest.mark.parametrize("entry", ["no base64", b64encode(b"no zlib").decode()])
def test_what_is_no_entry_is_refused(entry: str, metadata: TableMetadata) -> None:
    with pytest.raises(ValueError, match=r"base64|incorrect header"):
        added(entry, "f", 1, 1, metadata)


def test_an_entry_of_a_wide_table_stays_small(tmp_path: Path) -> None:
    """Handles lie in the register: 200 columns take some kilobytes for each file."""
    wide = Schema(*(NestedField(n, f"column_{n}", StringType()) for n in range(1, 201)))
    table = new_table_metadata(wide, PartitionSpec(), UNSORTED_SORT_ORDER, "file:///w/t", {})
    names = [field.name for field in wide.fields]
    columns = {name: [f"{name} a", f"{name} b"] for name in names}
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    entry = Entries(table).entry(pq.read_metadata(tmp_path / "f.parquet"), pa.record_batch({}))
    assert len(entry) < 10_000
