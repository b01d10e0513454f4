"""Which Arrow type fits which column: everything lossless, and nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest

from abs_sinks.postgres.columns.type_mapping import Wire, fit
from abs_sinks.postgres.columns.types import PgType
from abs_sinks.refusals import MisfitError

BOOL, BYTEA, TEXT, UUID = (PgType(0, n, n) for n in ("bool", "bytea", "text", "uuid"))
TEXT = PgType(25, "text", "text", receive="textrecv")
MOOD = PgType(16400, "app.mood", "app.mood", receive="enum_recv")
CITEXT = PgType(16401, "public.citext", "citext", receive="textrecv")
JSON = PgType(114, "json", "json", receive="json_recv")
JSONB = PgType(3802, "jsonb", "jsonb", receive="jsonb_recv")
INET = PgType(869, "inet", "inet", receive="inet_recv")
MONEY = PgType(790, "money", "money", category="N")
INT2, INT4, INT8 = (PgType(0, f"int{n}", f"int{n}") for n in (2, 4, 8))
FLOAT4, FLOAT8 = PgType(700, "float4", "real"), PgType(701, "float8", "double precision")
NUMERIC = PgType(1700, "numeric", "numeric")
DATE, TIME, TIMETZ = (PgType(0, n, n) for n in ("date", "time", "timetz"))
TIMESTAMP, TIMESTAMPTZ = (PgType(0, n, n) for n in ("timestamp", "timestamptz"))
INTERVAL = PgType(1186, "interval", "interval")
YEAR_TO_MONTH = PgType(1186, "interval", "interval year to month", typmod=0x0006_FFFF)
DAY_TO_SECOND = PgType(1186, "interval", "interval day to second", typmod=0x1C08_FFFF)

MOMENT, WALL_CLOCK = pa.timestamp("us", tz="America/New_York"), pa.timestamp("us")
MONTHS = pa.month_day_nano_interval()


def numeric(precision: int, scale: int) -> PgType:
    typmod = (precision << 16 | scale & 0x7FF) + 4
    return PgType(1700, "numeric", f"numeric({precision},{scale})", typmod=typmod)


def array(element: PgType) -> PgType:
    return PgType(1, f"_{element.name}", f"{element.label}[]", element=element)


@pytest.mark.parametrize(
    ("arrow", "pg", "widened"),
    [
        (pa.bool_(), BOOL, pa.bool_()),
        (pa.int8(), INT2, pa.int16()),
        (pa.int8(), INT8, pa.int64()),
        (pa.int16(), INT4, pa.int32()),
        (pa.int32(), INT4, pa.int32()),
        (pa.int32(), INT8, pa.int64()),
        (pa.uint8(), INT2, pa.int16()),
        (pa.uint16(), INT4, pa.int32()),
        (pa.uint32(), INT8, pa.int64()),
        (pa.uint64(), numeric(20, 0), pa.decimal128(20, 0)),
        (pa.int16(), FLOAT4, pa.float32()),
        (pa.int32(), FLOAT8, pa.float64()),
        (pa.int64(), NUMERIC, pa.decimal128(19, 0)),
        (pa.int64(), numeric(21, 2), pa.decimal128(19, 0)),
        (pa.float16(), FLOAT4, pa.float32()),
        (pa.float32(), FLOAT8, pa.float64()),
        (pa.decimal128(10, 2), numeric(10, 2), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), numeric(12, 4), pa.decimal128(10, 2)),
        (pa.decimal128(38, 18), NUMERIC, pa.decimal128(38, 18)),
        (pa.decimal128(4, 0), numeric(6, -2), None),
        (pa.decimal128(18, 0), INT8, pa.int64()),
        (pa.decimal128(5, -2), INT4, pa.int32()),
        (pa.decimal32(5, 2), NUMERIC, pa.decimal128(5, 2)),
        (pa.decimal256(20, 2), NUMERIC, pa.decimal128(20, 2)),
        (pa.string(), TEXT, pa.string()),
        (pa.large_string(), TEXT, pa.string()),
        (pa.string_view(), TEXT, pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), TEXT, pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.string()), TEXT, pa.string()),
        (pa.string(), MOOD, pa.string()),
        (pa.string(), CITEXT, pa.string()),
        (pa.string(), JSON, pa.string()),
        (pa.binary(), BYTEA, pa.binary()),
        (pa.binary_view(), BYTEA, pa.binary()),
        (pa.date32(), DATE, pa.date32()),
        (pa.date64(), DATE, pa.date32()),
        (pa.date32(), TIMESTAMP, pa.timestamp("us")),
        (MOMENT, TIMESTAMPTZ, pa.timestamp("us", tz="UTC")),
        (WALL_CLOCK, TIMESTAMP, pa.timestamp("us")),
        (pa.timestamp("ns"), TIMESTAMP, pa.timestamp("us")),
        (pa.time64("ns"), TIME, pa.time64("us")),
        (pa.time32("s"), TIME, pa.time64("us")),
        (pa.duration("ns"), INTERVAL, pa.duration("us")),
        (pa.duration("us"), DAY_TO_SECOND, pa.duration("us")),
    ],
    ids=str,
)
def test_lossless_conversions_are_written_by_pgpq(
    arrow: pa.DataType, pg: PgType, widened: pa.DataType | None
) -> None:
    if widened is None:
        with pytest.raises(MisfitError):
            fit(arrow, pg)
        return
    conversion = fit(arrow, pg)
    assert conversion.wire is Wire.ARROW
    assert conversion.arrow == widened


@pytest.mark.parametrize(
    ("arrow", "pg", "wire"),
    [
        (pa.string(), JSONB, Wire.JSONB),
        (pa.struct([("a", pa.int32())]), JSONB, Wire.JSONB),
        (pa.struct([("a", pa.int32())]), JSON, Wire.ARROW),
        (pa.list_(pa.map_(pa.string(), pa.int32())), JSONB, Wire.JSONB),
        (pa.string(), UUID, Wire.PAYLOAD),
        (pa.uuid(), UUID, Wire.PAYLOAD),
        (MONTHS, INTERVAL, Wire.PAYLOAD),
        (pa.null(), INT4, Wire.PAYLOAD),
        (pa.list_(pa.int32()), array(INT8), Wire.PAYLOAD),
        (pa.large_list(pa.list_view(pa.string_view())), array(TEXT), Wire.PAYLOAD),
        (pa.list_(pa.struct([("a", pa.null())])), array(JSONB), Wire.PAYLOAD),
        (pa.string(), INET, Wire.TEXT),
        (pa.string(), INTERVAL, Wire.TEXT),
        (pa.list_(pa.string()), array(INET), Wire.TEXT),
    ],
    ids=str,
)
def test_other_types_have_a_way_of_their_own(arrow: pa.DataType, pg: PgType, wire: Wire) -> None:
    assert fit(arrow, pg).wire is wire


def tagged(tag: bytes) -> pa.DataType:
    return pa.struct(
        [pa.field("value", pa.binary()), pa.field("m", pa.binary(), metadata={tag: b"true"})]
    )


@pytest.mark.parametrize(
    ("arrow", "pg", "why"),
    [
        (pa.int64(), INT4, "over 32 bits"),
        (pa.int32(), INT2, "over 16 bits"),
        (pa.uint64(), INT8, "more digits"),
        (pa.int64(), FLOAT8, "rounded"),
        (pa.int32(), FLOAT4, "rounded"),
        (pa.int64(), numeric(18, 0), "fewer digits"),
        (pa.int64(), TEXT, "does not fit text"),
        (pa.int32(), BOOL, "does not fit bool"),
        (pa.float64(), FLOAT4, "rounded"),
        (pa.float64(), NUMERIC, "binary fraction"),
        (pa.decimal128(38, 18), numeric(10, 2), "fewer digits"),
        (pa.decimal128(10, 2), numeric(11, 1), "fewer digits"),
        (pa.decimal128(10, 2), numeric(10, 3), "fewer digits"),
        (pa.decimal128(20, 0), INT8, "more digits"),
        (pa.decimal128(10, 2), FLOAT8, "rounded"),
        (pa.decimal128(10, 2), INT8, "does not fit int8"),
        (pa.decimal256(60, 2), NUMERIC, "decimal256"),
        (pa.string(), INT4, "does not fit int4"),
        (pa.string(), BYTEA, "does not fit bytea"),
        (pa.string(), array(TEXT), "does not fit"),
        (pa.string(), MONEY, "rounds"),
        (pa.binary(), TEXT, "does not fit text"),
        (pa.binary(), JSONB, "does not fit jsonb"),
        (pa.bool_(), INT4, "does not fit int4"),
        (pa.date32(), TIMESTAMPTZ, "time zone"),
        (MOMENT, TIMESTAMP, "wall clock"),
        (WALL_CLOCK, TIMESTAMPTZ, "a moment"),
        (MOMENT, DATE, "dropped"),
        (pa.time64("us"), TIMETZ, "does not fit timetz"),
        (pa.duration("us"), YEAR_TO_MONTH, "dropped"),
        (MONTHS, DAY_TO_SECOND, "dropped"),
        (pa.duration("us"), INT8, "does not fit int8"),
        (pa.int32(), JSONB, "does not fit jsonb"),
        (pa.list_(pa.int32()), INT4, "array or jsonb"),
        (pa.list_(pa.int64()), array(INT4), "over 32 bits"),
        (pa.list_(pa.decimal128(10, 2)), array(numeric(5, 2)), "fewer digits"),
        (pa.struct([("a", pa.int32())]), TEXT, "to_json"),
        (pa.map_(pa.string(), pa.int32()), TEXT, "to_json"),
        (pa.map_(pa.list_(pa.int8()), pa.int32()), JSONB, "keys"),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), JSONB, "two fields"),
        (tagged(b"variant"), JSONB, "to_json"),
        (pa.list_(tagged(b"geometry")), JSONB, "st_asbinary"),
        (pa.dense_union([pa.field("a", pa.int8())]), JSONB, "not supported"),
    ],
    ids=str,
)
def test_lossy_and_senseless_conversions_are_refused(
    arrow: pa.DataType, pg: PgType, why: str
) -> None:
    with pytest.raises(MisfitError) as refused:
        fit(arrow, pg)
    assert why in f"{refused.value.reason}: {refused.value.remedy}"


def test_arrays_end_at_six_dimensions() -> None:
    nested: pa.DataType = pa.int32()
    for _ in range(6):
        nested = pa.list_(nested)
    assert fit(nested, array(INT4)).wire is Wire.PAYLOAD
    with pytest.raises(MisfitError, match="7 dimensions"):
        fit(pa.list_(nested), array(INT4))
