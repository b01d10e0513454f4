"""Values of a row in the files' formats: nested nulls, and errors that name the column."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_core.errors import RowError
from abs_sinks.s3 import S3Options
from abs_sinks.s3.formats import encoder

NEVER_NULL = pa.field("a", pa.int32(), nullable=False)
STRUCT = pa.StructArray.from_arrays(  # as Spark sends it: null itself, and so is its field
    [pa.array([1, None, 3], pa.int32())], fields=[NEVER_NULL], mask=pa.array([False, True, False])
)
OFFSETS = pa.array([0, 2, 3], pa.int32())
WITH_NULL_STRUCTS = {
    "struct": STRUCT,
    "list": pa.ListArray.from_arrays(OFFSETS, STRUCT),
    "map": pa.MapArray.from_arrays(OFFSETS, pa.array(["k", "l", "m"]), STRUCT),
    "struct in struct": pa.StructArray.from_arrays(
        [STRUCT], fields=[pa.field("s", STRUCT.type, nullable=True)]
    ),
}


def encoded(table: pa.Table, fileformat: str) -> bytes:
    options = S3Options.parse({"path": "s3://bucket/folder", "fileformat": fileformat})
    out = pa.BufferOutputStream()
    writer = encoder(out, table.schema, options)
    writer.write(table)
    writer.close()
    content: bytes = out.getvalue().to_pybytes()
    return content


@pytest.mark.parametrize("fileformat", ["parquet", "arrow", "json"])
@pytest.mark.parametrize("column", WITH_NULL_STRUCTS.values(), ids=WITH_NULL_STRUCTS)
def test_a_struct_may_be_null_though_its_fields_may_not(column: pa.Array, fileformat: str) -> None:
    table = pa.table({"v": column})
    content = encoded(table, fileformat)
    expected = table.to_pylist()
    if fileformat == "parquet":
        assert pq.read_table(pa.BufferReader(content)).to_pylist() == expected
    elif fileformat == "arrow":
        with pa.ipc.open_file(content) as file:
            assert file.read_all().to_pylist() == expected
    else:
        found = [json.loads(line) for line in content.decode().splitlines()]
        as_maps = (
            [{"v": dict(row["v"])} for row in expected] if pa.types.is_map(column.type) else []
        )
        assert found == (as_maps or expected)


@pytest.mark.parametrize("fileformat", ["csv", "json"])
def test_moments_are_in_utc_whatever_the_zone_of_the_session(fileformat: str) -> None:
    ticks = [
        -62_135_596_800_000_000,
        -1,
    ]  # the first is 4 h 56 min 2 s earlier on New York's clocks
    moments = pa.array(ticks, pa.timestamp("us", "America/New_York"))
    content = encoded(pa.table({"at": moments}), fileformat).decode().replace("T", " ")
    for text in ("0001-01-01 00:00:00.000000Z", "1969-12-31 23:59:59.999999Z"):
        assert text in content


def test_zero_keeps_its_sign_for_readers_of_json() -> None:
    zeros = pa.array([-0.0, 0.0])
    lines = encoded(pa.table({"f": zeros, "g": zeros.cast(pa.float32())}), "json").splitlines()
    assert [str(value) for value in json.loads(lines[0]).values()] == ["-0.0", "-0.0"]


def test_an_error_of_a_json_file_names_the_column_that_holds_the_value() -> None:
    texts = pa.array(["a", "b\x00"])
    with pytest.raises(RowError, match='Column "note"'):
        encoded(pa.table({"id": [1, 2], "note": texts}), "json")
    nested = pa.StructArray.from_arrays([texts], names=["inside"])
    with pytest.raises(RowError, match='Column "outer"'):
        encoded(pa.table({"outer": nested}), "json")
