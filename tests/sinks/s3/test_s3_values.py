"""Values of a row in the files' formats: nested nulls, and errors that name the column."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_core.errors import RowError
from abs_sinks.refusals import BadValuesError
from abs_sinks.s3 import S3Options, formats
from abs_sinks.s3.formats import encoder
from tests.planted import planted

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


def holds_what_it_was_given_or_refuses(random: Random) -> None:
    """Days and moments of any year that Arrow holds, as texts of CSV."""
    days = [random.randint(-(2**31), 2**31 - 1) >> random.randrange(32) for _ in range(20)]
    micros = [random.randint(-(2**63), 2**63 - 1) >> random.randrange(64) for _ in range(20)]
    kinds = (
        pa.array(days, pa.int32()).view(pa.date32()),
        pa.array(micros, pa.int64()).view(pa.timestamp("us", "UTC")),
        pa.array(micros, pa.int64()).view(pa.timestamp("us")),
    )
    for array in kinds:
        for place in range(len(array)):
            table = pa.table({"v": array.slice(place, 1)})
            try:
                content = encoded(table, "csv").decode()
            except BadValuesError:
                continue
            assert re.fullmatch(r'"v"\n-?\d{4,5}-\d\d-\d\d( [0-9:.]+Z?)?\n', content), content


def test_no_year_is_written_as_something_else() -> None:
    holds_what_it_was_given_or_refuses(Random(1))
    for ticks, refused in ((11_248_737, False), (11_248_738, True), (-12_687_429, True)):
        table = pa.table({"v": pa.array([ticks], pa.int32()).view(pa.date32())})
        with pytest.raises(BadValuesError) if refused else nullcontext():
            encoded(table, "csv")


def test_a_message_in_place_of_a_day_is_found() -> None:
    with planted((formats, "check_written", lambda array, column: None)):
        holds_what_it_was_given_or_refuses(Random(1))
