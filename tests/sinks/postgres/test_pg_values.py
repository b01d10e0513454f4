"""Values that PostgreSQL cannot hold are refused by name of the column, before they are sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import RowError, SchemaError
from abs_sinks.postgres.columns import encode
from abs_sinks.postgres.columns.plan import plan_columns
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.columns.types import Column, PgType

INT4 = PgType(23, "int4", "integer")
INT8 = PgType(20, "int8", "bigint")
TEXT = PgType(25, "text", "text", receive="textrecv")
VARCHAR3 = PgType(1043, "varchar", "varchar(3)", typmod=7, receive="varcharrecv")
CHAR3 = PgType(1042, "bpchar", "char(3)", typmod=7, receive="bpcharrecv")
JSONB = PgType(3802, "jsonb", "jsonb")
UUID = PgType(2950, "uuid", "uuid")
INET = PgType(869, "inet", "inet")
DATE = PgType(1082, "date", "date")
TIME, TIME0 = PgType(1083, "time", "time"), PgType(1083, "time", "time(0)", typmod=0)
TIMESTAMP, TIMESTAMPTZ = PgType(1114, "timestamp", "timestamp"), PgType(1184, "timestamptz", "tz")
TIMESTAMP3 = PgType(1114, "timestamp", "timestamp(3)", typmod=3)
INTERVAL = PgType(1186, "interval", "interval")
INTERVAL0 = PgType(1186, "interval", "interval(0)", typmod=0x7FFF_0000)
BYTEA = PgType(17, "bytea", "bytea")

US, MOMENT, NAIVE = pa.duration("us"), pa.timestamp("us", tz="UTC"), pa.timestamp("us")
MONTHS = pa.month_day_nano_interval()


def array(element: PgType) -> PgType:
    return PgType(1, f"_{element.name}", f"{element.label}[]", element=element)


def encoded(values: pa.Array, pg: PgType, *others: Column, not_null: bool = False) -> bytes:
    target = CatalogTable("public", "t", 1, (Column("the col", pg, not_null), *others))
    batch = pa.record_batch({"the col": values})
    encoder = plan_columns(batch.schema, target).encoder()
    return encoder.header() + encoder.encode(batch) + encoder.finish()


def invalid_utf8(count: int = 2) -> pa.Array:
    return pa.array([b"ok", b"\xff\xfe"][:count]).view(pa.string())


@pytest.mark.parametrize(
    ("values", "pg", "why"),
    [
        (pa.array(["fine", "a\0b", None]), TEXT, "1 of 3 values hold a NUL"),
        (pa.array(["fine", "a\0b", None]).dictionary_encode(), TEXT, "NUL"),
        (pa.array(["a\0b"]), JSONB, "NUL"),
        (pa.array(["a\0b"]), INET, "NUL"),
        (pa.array([["x"], ["a\0b"]]), array(TEXT), "NUL"),
        (pa.array([["x"], ["a\0b"]]), JSONB, "NUL"),
        (
            pa.array([{"x": [("a\0", 1)]}], pa.struct([("x", pa.map_("string", "int8"))])),
            JSONB,
            "NUL",
        ),
        (pa.array([{"x": "a\0b"}]), JSONB, "NUL"),
        (invalid_utf8(), TEXT, "UTF-8"),
        (invalid_utf8(), JSONB, "UTF-8"),
        (invalid_utf8(), INET, "UTF-8"),
        (pa.StructArray.from_arrays([invalid_utf8()], ["x"]), JSONB, "UTF-8"),
        (pa.array(["abc", "abcd"]), VARCHAR3, r"1 of 2 values are too long for varchar\(3\)"),
        (pa.array(["abc   "]), VARCHAR3, "too long"),
        (pa.array(["äöüß"]), VARCHAR3, "too long"),
        (pa.array(["abc "]), CHAR3, "too long"),
        (pa.array([["abcd"]]), array(VARCHAR3), "too long"),
        (pa.array([-2_440_589], pa.date32()), DATE, "outside the range of date"),
        (pa.array([2_145_042_906], pa.date32()), DATE, "outside the range of date"),
        (pa.array([-(2**31)], pa.date32()), DATE, "outside"),
        (pa.array([2**31 - 1], pa.date32()), DATE, "outside"),
        (pa.array([2**31 - 1], pa.date32()), TIMESTAMP, "cannot be converted"),
        (pa.array([[2**31 - 1]], pa.list_(pa.date32())), array(DATE), "outside"),
        (pa.array([-210_866_803_200_000_001], MOMENT), TIMESTAMPTZ, "4714-11-24 BC"),
        (pa.array([-(2**63)], NAIVE), TIMESTAMP, "4714-11-24 BC"),
        (pa.array([[-(2**63)]], pa.list_(NAIVE)), array(TIMESTAMP), "4714-11-24 BC"),
        (pa.array([2**62], pa.timestamp("s")), TIMESTAMP, "cannot be converted"),
        (pa.array([2**62], pa.timestamp("ms")), TIMESTAMP, "cannot be converted"),
        (pa.array([1], pa.timestamp("ns")), TIMESTAMP, "cannot be converted"),
        (
            pa.array([1_000, -1_001], NAIVE),
            TIMESTAMP3,
            r"more digits of a second than timestamp\(3\)",
        ),
        (pa.array([1], pa.time64("ns")), TIME, "cannot be converted"),
        (pa.array([1_500_000], pa.time64("us")), TIME0, "more digits of a second"),
        (pa.array([-1], pa.int64()).view(pa.time64("us")), TIME, "outside the range of time"),
        (pa.array([86_400_000_001], pa.int64()).view(pa.time64("us")), TIME, "outside"),
        (pa.array([1], US), INTERVAL0, "more digits of a second"),
        (pa.array([2**62], pa.duration("s")), INTERVAL, "cannot be converted"),
        (pa.array([(0, 0, 1)], MONTHS), INTERVAL, "nanoseconds"),
        (pa.array([[(0, 0, 1)]], pa.list_(MONTHS)), array(INTERVAL), "nanoseconds"),
        (pa.array([[(0, 0, 1)]], pa.list_(MONTHS)), JSONB, "nanoseconds"),
        (pa.array(["x" * 32]), UUID, "are no uuid"),
        (pa.array([""]), UUID, "are no uuid"),
        (pa.array(["0" * 31]), UUID, "are no uuid"),
        (pa.array(["0" * 33]), UUID, "are no uuid"),
        (pa.array(["00000000-0000-0000-0000-000000000000\n"]), UUID, "are no uuid"),
        (pa.array([b"\0" * 15]), UUID, "16 bytes"),
        (pa.array([[[1, 2], [3]]]), array(INT8), "differ in length"),
        (pa.array([[[1], []]]), array(INT8), "differ in length"),
        (pa.array([[[], []]], pa.list_(pa.list_(pa.int64()))), array(INT8), "empty"),
        (pa.array([[[1], None]]), array(INT8), "NULL"),
        (pa.array([[2_932_897]], pa.list_(pa.date32())), JSONB, "years 1 to 9999"),
        (pa.array([[-719_163]], pa.list_(pa.date32())), JSONB, "years 1 to 9999"),
        (pa.array([[253_402_300_800_000_000]], pa.list_(NAIVE)), JSONB, "years 1 to 9999"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_with_the_columns_name(
    values: pa.Array, pg: PgType, why: str
) -> None:
    with pytest.raises(RowError, match=why) as refused:
        encoded(values, pg)
    assert "the col" in str(refused.value)


@pytest.mark.parametrize(
    ("values", "pg"),
    [
        (pa.array(["abc", "äöü", "", None]), VARCHAR3),
        (pa.array(["a", "a\0b"]).slice(0, 1), TEXT),
        (pa.array([b"a\0b"]), BYTEA),
        (pa.array([-2_440_588, 2_145_042_905], pa.date32()), DATE),
        (pa.array([-210_866_803_200_000_000, 2**63 - 1], MOMENT), TIMESTAMPTZ),
        (pa.array([1_000, -1_000, 0], NAIVE), TIMESTAMP3),
        (pa.array([86_400_000_000], pa.int64()).view(pa.time64("us")), TIME),
        (pa.array([0, 86_399_999_999], pa.time64("us")), TIME),
        (pa.array([2**63 - 1, -(2**63)], US), INTERVAL),
        (pa.array([[], None, [[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int64()))), array(INT8)),
        (pa.array([], pa.string()), TEXT),
        (pa.array([], pa.list_(pa.string())), array(TEXT)),
        (pa.array([], pa.timestamp("us")), TIMESTAMP),
    ],
    ids=str,
)
def test_values_at_the_very_edge_are_not_refused(values: pa.Array, pg: PgType) -> None:
    encoded(values, pg)


@pytest.mark.parametrize(
    ("filled", "pg"),
    [
        (pa.array(["a\0b", "x"]), TEXT),
        (pa.array([b"\xff", b"x"]).view(pa.string()), TEXT),
        (pa.array([-(2**63), 0], NAIVE), TIMESTAMP),
        (pa.array([2**31 - 1, 0], pa.date32()), DATE),
        (pa.array([1, 0], NAIVE), TIMESTAMP3),
        (pa.array([(0, 0, 1), (0, 0, 0)], MONTHS), INTERVAL),
    ],
    ids=str,
)
def test_what_stands_under_a_null_does_not_matter(filled: pa.Array, pg: PgType) -> None:
    bitmap = pa.py_buffer(b"\x02")  # the first is null
    values = pa.Array.from_buffers(filled.type, 2, [bitmap, *filled.buffers()[1:]])
    assert encoded(values, pg)
    assert encoded(pa.ListArray.from_arrays([0, 2], values), array(pg))


def test_null_in_a_not_null_column_is_refused_before_it_is_sent() -> None:
    with pytest.raises(RowError, match='"the col": 1 of 2 values are NULL'):
        encoded(pa.array([1, None], pa.int32()), INT4, not_null=True)


def test_no_value_is_shown_in_an_error() -> None:
    with pytest.raises(RowError) as refused:
        encoded(pa.array(["4111 1111 1111 1111"]), VARCHAR3)
    assert "4111" not in str(refused.value)


def test_a_batch_of_another_schema_is_refused() -> None:
    target = CatalogTable("public", "t", 1, (Column("a", TIMESTAMPTZ), Column("b", TEXT)))
    planned = pa.schema([("a", pa.timestamp("us", tz="UTC")), ("b", pa.string())])
    encoder = plan_columns(planned, target).encoder()
    encoder.header()
    same = pa.schema([("a", pa.timestamp("us", tz="Asia/Tokyo")), ("b", pa.large_string())])
    encoder.encode(_empty(same))
    for other in (
        [("b", pa.string()), ("a", pa.timestamp("us", tz="UTC"))],
        [("a", pa.timestamp("us")), ("b", pa.string())],
        [("a", pa.timestamp("us", tz="UTC"))],
    ):
        with pytest.raises(SchemaError, match="planned were"):
            encoder.encode(_empty(pa.schema(other)))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


@pytest.mark.parametrize("pg", [TEXT, INET], ids=str)
def test_a_large_batch_gives_the_same_bytes_in_slices(
    pg: PgType, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = pa.array([f"value {n}" for n in range(1_000)]).slice(7, 900)
    whole = encoded(values, pg)
    monkeypatch.setattr(encode, "SLICE_BYTES", 1_000)
    assert encoded(values, pg) == whole


def test_a_slice_of_a_batch_is_encoded_as_if_it_stood_alone() -> None:
    cases: Iterable[tuple[list[Any], pa.DataType, PgType]] = [
        ([1, None, 3, 4], pa.int64(), INT8),
        (["a", None, "c", "d"], pa.string(), TEXT),
        ([[1], None, [2, None], []], pa.list_(pa.int64()), array(INT8)),
        ([["a"], None, ["b", None], []], pa.list_(pa.string()), JSONB),
        ([[("a", 1)], None, [("b", None)], []], pa.map_(pa.string(), pa.int8()), JSONB),
        ([{"x": 1}, None, {"x": None}, {}], pa.struct([("x", pa.int8())]), JSONB),
        ([(1, 2, 0), None, (3, 4, 0), (5, 6, 0)], MONTHS, INTERVAL),
        (["0" * 32, None, "1" * 32, "f" * 32], pa.string(), UUID),
    ]
    for values, arrow, pg in cases:
        whole = pa.array(values, arrow)
        assert encoded(whole.slice(1, 2), pg) == encoded(pa.array(values[1:3], arrow), pg)


@pytest.mark.parametrize("most_rows", [None, 1, 7, 100])
@pytest.mark.parametrize("rows", [0, 1, 50, 100])
def test_slices_hold_every_row_once_within_both_bounds(
    rows: int, most_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "SLICE_BYTES", 200)
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())})
    found = encode.slices(batch, most_rows)
    assert [n for each in found for n in each.column(0).to_pylist()] == [*range(rows)]
    assert all(0 < each.num_rows <= (most_rows or rows) and each.nbytes <= 200 for each in found)
