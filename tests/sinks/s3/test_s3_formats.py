"""How rows are laid out inside a file."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_core.errors import SchemaError
from abs_sinks.s3 import S3Options
from abs_sinks.s3.formats import check_schema, encoder

ROWS = 40_000


def written(tables: Sequence[pa.Table]) -> pq.ParquetFile:
    out = pa.BufferOutputStream()
    options = S3Options.parse({"path": "s3://bucket/rows"})
    file = encoder(out, tables[0].schema, options)
    for table in tables:
        file.write(table)
    file.close()
    return pq.ParquetFile(pa.BufferReader(out.getvalue()))


def with_dictionary(file: pq.ParquetFile) -> set[str]:
    group = file.metadata.row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    return {one.path_in_schema for one in columns if one.has_dictionary_page}


def test_a_column_whose_values_hardly_repeat_gets_no_dictionary() -> None:
    table = pa.table(
        {
            "id": range(ROWS),
            "price": pa.array([Decimal(n % 50) for n in range(ROWS)], pa.decimal128(12, 2)),
            "city.name": [f"city {n % 700}" for n in range(ROWS)],
            "note": [None if n % 2 else f"note {n}" for n in range(ROWS)],
        }
    )
    file = written([table, table])
    assert with_dictionary(file) == {"price", "city.name", "note"}
    assert file.read().equals(pa.concat_tables([table, table]))


def test_lists_of_nulls_are_written_whole() -> None:
    """Arrow 26 cuts them in a cast, also in one to the same type."""
    table = pa.table({"none": pa.array([[None] * 3, [], [None] * 2], pa.list_(pa.null()))})
    assert written([table]).read().to_pylist() == table.to_pylist()


def test_short_tables_and_nested_columns_keep_every_dictionary() -> None:
    short = pa.table({"id": range(100)})
    nested = pa.table({"id": range(ROWS), "tags": [[n] for n in range(ROWS)]})
    assert with_dictionary(written([short])) == {"id"}
    assert "id" in with_dictionary(written([nested]))


def test_a_decimal_of_negative_scale_is_refused_for_parquet() -> None:
    schema = pa.schema([("amount", pa.decimal128(5, -2))])
    with pytest.raises(SchemaError, match="cannot be written as Parquet"):
        check_schema(schema, S3Options.parse({"path": "s3://bucket/rows"}))


def test_a_file_without_rows_can_be_read() -> None:
    schema = pa.schema({"id": pa.int64()})
    out = pa.BufferOutputStream()
    encoder(out, schema, S3Options.parse({"path": "s3://bucket/rows"})).close()
    assert pq.read_table(pa.BufferReader(out.getvalue())).schema == schema


def test_lists_in_arrow_s_view_layout_are_written_with_all_values() -> None:
    """Arrow's own cast to lists drops some."""
    options = S3Options.parse({"path": "s3://bucket/rows", "fileformat": "json"})
    for rows in ([[1], [2, 3]], [[1], [2, 3], None], [None, [], [4]]):
        table = pa.table({"c": pa.array(rows, pa.list_view(pa.int64()))})
        out = io.BytesIO()
        writing = encoder(out, table.schema, options)
        writing.write(table)
        writing.close()
        assert [json.loads(line)["c"] for line in out.getvalue().splitlines()] == rows
        assert written([table]).read()["c"].to_pylist() == rows
