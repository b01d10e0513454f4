"""What is read back from a real server is what was in the batch, in both formats of COPY."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sinks.postgres.copied import (
    BOTH,
    EXACT,
    MOMENT,
    MONTHS,
    NAIVE,
    NEW_YORK,
    US,
    UTC,
    Connection,
    naive,
    scaled,
    stored,
)

pytestmark = pytest.mark.services


_TEXTS = [
    "",
    "\\N",
    "\\.",
    "a\tb\nc\rd\\e",
    '"',
    "''",
    "NULL",
    "null",
    "é😀\u2028",
    " ",
    "{}",
    None,
]

CASES: list[tuple[pa.DataType, str, list[Any]]] = [
    (pa.bool_(), "boolean", [True, False, None]),
    (pa.int8(), "smallint", [-128, 127, None]),
    (pa.int16(), "smallint", [-(2**15), 2**15 - 1, None]),
    (pa.int32(), "integer", [-(2**31), 2**31 - 1, None]),
    (pa.int64(), "bigint", [-(2**63), 2**63 - 1, 0, None]),
    (pa.int8(), "bigint", [-128, 127, None]),
    (pa.int16(), "real", [-(2**15), 2**15 - 1, None]),
    (pa.int32(), "double precision", [-(2**31), 2**31 - 1, None]),
    (pa.int64(), "numeric", [-(2**63), 2**63 - 1, None]),
    (pa.uint64(), "numeric(20,0)", [0, 2**64 - 1, None]),
    (pa.float32(), "real", [1.5, -0.0, 2.0**-149, 3.4028234663852886e38, math.inf, -math.inf, None]),
    (pa.float64(), "double precision", [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, None]),
    (pa.float32(), "double precision", [1.5, 0.10000000149011612, None]),
    (pa.string(), "text", _TEXTS),
    (pa.large_string(), "varchar(20)", _TEXTS),
    (pa.string_view(), "varchar", _TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), "text", _TEXTS),
    (pa.string(), "json", ['{"a": 1.10}', "[]", None]),
    (pa.string(), "jsonb", ['{"a": 1.10}', '"\\u00e9\\n"', "null", None]),
    (pa.string(), "uuid", ["00000000-0000-0000-0000-0000000000ff", "f" * 32, "F" * 32, None]),
    (pa.binary(16), "uuid", [bytes(range(16)), b"\xff" * 16, None]),
    (pa.binary(), "bytea", [b"", bytes(range(256)), b"\\x00", None]),
    (pa.binary_view(), "bytea", [b"\0", b"a view longer than twelve bytes", None]),
    (pa.date32(), "date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2000, 2, 29), None]),
    (pa.date64(), "date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    (pa.date32(), "timestamp", [naive(1, 1, 1), naive(9999, 12, 31), None]),
    (NAIVE, "timestamp", [naive(1, 1, 1), naive(9999, 12, 31, 23, 59, 59, 999999), None]),
    (pa.timestamp("s"), "timestamp(0)", [naive(1970, 1, 1), naive(2024, 2, 29), None]),
    (pa.timestamp("ns"), "timestamp", [naive(2024, 2, 29, 1, 2, 3, 4), None]),
    (MOMENT, "timestamptz", [dt.datetime(2024, 2, 29, 23, 59, 59, 999999, UTC), None]),
    (pa.timestamp("us", tz="America/New_York"), "timestamptz",
     [dt.datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=NEW_YORK), dt.datetime(1, 1, 3, tzinfo=UTC)]),
    (pa.time64("ns"), "time", [dt.time.min, dt.time.max, dt.time(12, 0, 0, 1), None]),
    (US, "interval", [dt.timedelta(days=-1, microseconds=1), dt.timedelta(days=400), None]),
    (pa.list_(pa.int16()), "integer[]", [[1, None, -(2**15)], [], [None], None]),
    (pa.list_(pa.bool_()), "boolean[]", [[True, None], [], None]),
    (pa.list_(pa.float64()), "float8[]", [[0.1, None, math.inf], [], None]),
    (pa.list_(pa.string()), "text[]", [_TEXTS, [], ["a,b", "{x}", "a\"b\\c"], None]),
    (pa.large_list(pa.large_string()), "varchar(20)[]", [_TEXTS, [], None]),
    (pa.list_(pa.string()), "uuid[]", [["0" * 31 + "1", None], [], None]),
    (pa.list_(pa.binary()), "bytea[]", [[b"\0\xff", None, b""], [], None]),
    (pa.list_(pa.date32()), "date[]", [[dt.date(1, 1, 1), None], [], None]),
    (pa.list_(MOMENT), "timestamptz[]", [[dt.datetime(2024, 2, 29, tzinfo=UTC), None], [], None]),
    (pa.list_(NAIVE), "timestamp[]", [[naive(2024, 2, 29), None], [], None]),
    (pa.list_(pa.time64("us")), "time[]", [[dt.time(1, 2, 3, 4), None], [], None]),
    (pa.list_(US), "interval[]", [[dt.timedelta(days=3, microseconds=1), None], [], None]),
    (pa.list_(pa.null()), "integer[]", [[None, None], [], None]),
    (pa.list_(pa.list_(pa.int32())), "integer[]", [[[1, 2], [3, None]], [[5]], [], None]),
    (pa.list_(pa.list_(pa.list_(pa.string()))), "text[]", [[[["a"], ["b"]]], [], None]),
    (pa.list_(pa.struct([("a", pa.int8())])), "jsonb[]", [[{"a": 1}, None], [], None]),
    (pa.null(), "text", [None, None]),
    (pa.null(), "integer[]", [None]),
]  # fmt: skip


def expected(value: Any, declared: str) -> Any:
    if isinstance(value, list):
        return [expected(item, declared.removesuffix("[]")) for item in value]
    if value is None or not isinstance(value, str | bytes):
        return value
    if declared == "uuid":
        return uuid.UUID(value) if isinstance(value, str) else uuid.UUID(bytes=value)
    return json.loads(value, parse_float=Decimal) if declared in ("json", "jsonb") else value


def moments(value: Any) -> Any:
    """Moments in one zone: two of different zones are never equal in a repeated hour."""
    aware = isinstance(value, dt.datetime) and value.tzinfo is not None
    return value.astimezone(UTC) if aware else value


@BOTH
@pytest.mark.parametrize(("arrow", "declared", "values"), CASES, ids=str)
def test_values_of_every_type_are_read_back_unchanged(
    connection: Connection, arrow: pa.DataType, declared: str, values: list[Any], how: str
) -> None:
    connection.execute("set TimeZone = UTC")
    back = stored(connection, pa.array(values, arrow), declared, how=how)
    assert back == [moments(expected(value, declared)) for value in values]
    assert [math.copysign(1, v) for v in back if isinstance(v, float)] == [
        math.copysign(1, v) for v in values if v is not None and isinstance(back[0], float)
    ]


@BOTH
@pytest.mark.parametrize("declared", ["real", "double precision", "real[]"])
def test_not_a_number_stays_so(connection: Connection, declared: str, how: str) -> None:
    nested = declared.endswith("[]")
    arrow = pa.list_(pa.float32()) if nested else pa.float32()
    (back,) = stored(
        connection, pa.array([[math.nan] if nested else math.nan], arrow), declared, how=how
    )
    assert math.isnan(back[0] if nested else back)


DECIMALS = [
    "0", "-0.01", "1", "-1", "9999", "10000", "10001", "0.0001", "0.00001", "1.00001", "100000000",
    "99999999.99999999", "0.1", "12345678901234567890.123456789",
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(
    ("precision", "scale"),
    [(38, 0), (38, 38), (38, 18), (38, 1), (38, 37), (9, 4), (4, 4), (30, 9)],
)
def test_decimals_keep_every_digit(
    connection: Connection, precision: int, scale: int, how: str
) -> None:
    arrow = pa.decimal128(precision, scale)
    edge = 10**precision - 1
    values = [scaled(n, scale) for n in (edge, -edge, 1, -1, 0)]
    for number in map(Decimal, DECIMALS):
        whole = EXACT.scaleb(number, scale)
        if whole == EXACT.to_integral_value(whole) and abs(whole) <= edge:
            values.append(number)
    written = [*values, None]
    plain = f"numeric({precision},{scale})"
    assert stored(connection, pa.array(written, arrow), plain, how=how) == written
    lists = pa.array([written, [], None], pa.list_(arrow))
    assert stored(connection, lists, f"{plain}[]", how=how) == [written, [], None]
    # Without a modifier of the column, the scale is the input's own.
    read = "(select array_agg(distinct scale(e)) from unnest(v) e where e is not null)"
    assert stored(connection, lists.slice(0, 1), "numeric[]", read) == [[scale]]


@given(data=st.data(), precision=st.integers(1, 38))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_decimal_is_read_back_unchanged(
    connection: Connection, data: st.DataObject, precision: int
) -> None:
    scale = data.draw(st.integers(0, precision))
    edge = 10**precision - 1
    whole = data.draw(st.lists(st.integers(-edge, edge), min_size=1, max_size=20))
    values = [scaled(n, scale) for n in whole]
    arrow = pa.decimal128(precision, scale)
    assert stored(connection, pa.array(values, arrow), "numeric") == values
    assert stored(connection, pa.array([values], pa.list_(arrow)), "numeric[]") == [values]


def test_the_first_and_last_days_and_moments_of_postgres_arrive(connection: Connection) -> None:
    connection.execute("set TimeZone = UTC; set DateStyle = ISO")
    days = pa.array([-2_440_588, 2_145_042_905], pa.date32())
    assert stored(connection, days, "date", "v::text") == ["4714-11-24 BC", "5874897-12-31"]
    ticks = pa.array([-210_866_803_200_000_000, 2**63 - 1], NAIVE)
    naive = stored(connection, ticks, "timestamp", "v::text")
    assert naive == ["4714-11-24 00:00:00 BC", "294247-01-10 04:00:54.775807"]
    moments = stored(connection, ticks.cast(MOMENT), "timestamptz", "isfinite(v)")
    assert moments == [True, True]
    lists = stored(connection, pa.array([[-2_440_588]], pa.list_(pa.date32())), "date[]", "v::text")
    assert lists == ['{"4714-11-24 BC"}']
    midnight = pa.array([86_400_000_000], pa.int64()).view(pa.time64("us"))
    assert stored(connection, midnight, "time", "v::text") == ["24:00:00"]


@BOTH
def test_intervals_keep_months_days_and_microseconds_apart(
    connection: Connection, how: str
) -> None:
    values = [
        (14, -3, 1_000),
        (-1, 40, 1_000),
        (-1, 40, -86_400_000_001_000),
        (2**31 - 1, -(2**31), 0),
        None,
    ]
    for arrow, declared, column in (
        (MONTHS, "interval", pa.array(values, MONTHS)),
        (pa.list_(MONTHS), "interval[]", pa.array([[v] for v in values], pa.list_(MONTHS))),
    ):
        field = "v" if arrow == MONTHS else "v[1]"
        parts = ", ".join(
            f"extract({part} from {field})::text"
            for part in ("year", "month", "day", "hour", "minute", "second")
        )
        back = stored(connection, column, declared, f"array[{parts}]", how)
        assert back == [
            ["1", "2", "-3", "0", "0", "0.000001"],
            ["0", "-1", "40", "0", "0", "0.000001"],
            ["0", "-1", "40", "-24", "0", "-0.000001"],
            ["178956970", "7", "-2147483648", "0", "0", "0.000000"],
            [None] * 6,
        ]


@BOTH
def test_the_longest_durations_are_exact(connection: Connection, how: str) -> None:
    ticks = [2**63 - 1, -(2**63), -1, 1, 0]
    back = stored(
        connection, pa.array(ticks, US), "interval", "(extract(epoch from v) * 1000000)::text", how
    )
    assert [int(Decimal(text)) for text in back] == ticks
