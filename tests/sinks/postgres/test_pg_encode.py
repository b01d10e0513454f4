"""What is read back from a real server is what was in the batch, in both formats of COPY."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import set_json_loads

from abs_clients.postgres.name import TableName
from abs_sinks.postgres.create import create_table_statement
from abs_sinks.postgres.schema import plan_columns
from abs_sinks.postgres.table import read_table

pytestmark = pytest.mark.services

Connection = psycopg.Connection[Any]


def naive(*parts: int) -> dt.datetime:
    """A wall clock without a zone: what TIMESTAMP_NTZ and timestamp are."""
    return dt.datetime(*parts, tzinfo=None)  # type: ignore[arg-type,misc]  # noqa: DTZ001


UTC, NEW_YORK = dt.UTC, ZoneInfo("America/New_York")
MOMENT, NAIVE, US = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.duration("us")
MONTHS = pa.month_day_nano_interval()


@pytest.fixture
def connection(shared_database: str) -> Iterator[Connection]:
    # Styles that no text form may depend on.
    odd = "-c DateStyle=SQL,DMY -c IntervalStyle=sql_standard -c TimeZone=Asia/Kolkata"
    with psycopg.connect(shared_database, autocommit=True, options=odd) as made:
        made.execute("drop owned by current_user cascade")
        set_json_loads(lambda text: json.loads(text, parse_float=Decimal), made)
        yield made


def copy_in(connection: Connection, table: str, *batches: pa.RecordBatch) -> str:
    """Copy batches into a table, by the plan; returns the format of the COPY."""
    plan = plan_columns(batches[0].schema, read_table(connection, TableName.parse(table)))
    encoder = plan.encoder()
    with connection.cursor().copy(plan.copy_statement()) as copy:
        copy.write(encoder.header())
        for batch in batches:
            copy.write(encoder.encode(batch))
        copy.write(encoder.finish())
    return plan.format


def stored(
    connection: Connection, values: pa.Array, declared: str, read: str = "v", how: str = "binary"
) -> list[Any]:
    """Write values into a column of that type and read them back through an SQL expression."""
    connection.execute(f"drop table if exists t; create table t (n bigint, v {declared}, x inet)")
    columns = {"n": pa.array(range(len(values))), "v": values}
    if how == "text":  # an inet column has no other way
        columns["x"] = pa.array(["::1"] * len(values))
    else:
        connection.execute("alter table t drop column x")
    assert copy_in(connection, "t", pa.record_batch(columns)) == how
    # Binary results: floats in full, and no style of the session matters.
    rows = connection.execute(f"select {read} from t order by n", binary=True)
    return [row[0] for row in rows]


BOTH = pytest.mark.parametrize("how", ["binary", "text"])

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


EXACT = Context(prec=100)


def scaled(whole: int, scale: int) -> Decimal:
    """whole / 10**scale, with all its digits."""
    return EXACT.scaleb(Decimal(whole), -scale)


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


def test_short_texts_are_padded_for_char_as_sql_says(connection: Connection) -> None:
    assert stored(connection, pa.array(["ab", "", "äöü"]), "char(3)") == ["ab ", "   ", "äöü"]


@BOTH
def test_labels_of_enums_and_values_of_domains_arrive(connection: Connection, how: str) -> None:
    connection.execute(
        "create type mood as enum ('ok', 'bad'); create domain price as numeric(9,2)"
    )
    labels = pa.array(["ok", None, "bad"])
    assert stored(connection, labels, "mood", "v::text", how) == ["ok", None, "bad"]
    moods = stored(connection, pa.array([["ok", None]]), "mood[]", "v::text[]", how)
    assert moods == [["ok", None]]
    prices = pa.array([Decimal("1.10"), None], pa.decimal128(9, 2))
    assert stored(connection, prices, "price", how=how) == [Decimal("1.10"), None]
    lists = pa.array([[Decimal("1.10"), None]], pa.list_(pa.decimal128(9, 2)))
    assert stored(connection, lists, "price[]", "v::text", how) == ["{1.10,NULL}"]
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        stored(connection, pa.array(["sad"]), "mood", how=how)


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("inet", ["10.0.0.0/8", "2001:db8::/32", None]),
        ("macaddr", ["08:00:2b:01:02:03", None]),
        ("point", ["(1.5,-2)", None]),
        ("int4range", ["[1,10)", "empty", None]),
        ("bit(3)", ["101", None]),
        ("tsvector", ["'a':1 'b':2", None]),
        ("interval", ["P1Y2M", None]),
        ("inet[]", [["10.0.0.0/8", None], [], None]),
        ("int4range[]", [["[1,10)"], None]),
    ],
)
def test_types_without_a_counterpart_are_written_from_their_text(
    connection: Connection, declared: str, values: list[Any]
) -> None:
    connection.execute("set IntervalStyle = iso_8601")
    base = declared.removesuffix("[]")
    arrow = pa.list_(pa.string()) if declared != base else pa.string()
    connection.execute(f"create table s (n bigint, v {declared})")
    batch = pa.record_batch({"n": pa.array(range(len(values))), "v": pa.array(values, arrow)})
    assert copy_in(connection, "s", batch) == "text"
    cast = "v::text[]" if declared != base else "v::text"
    assert [r[0] for r in connection.execute(f"select {cast} from s order by n")] == values


NESTED = pa.struct(
    [
        ("i", pa.int64()),
        ("d", pa.decimal128(38, 10)),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("t", pa.timestamp("us", tz="America/New_York")),
        ("l", pa.list_(pa.list_(pa.date32()))),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.bool_())]))),
    ]
)


@BOTH
@pytest.mark.parametrize("declared", ["jsonb", "json"])
def test_nested_values_arrive_as_json_that_sql_can_read(
    connection: Connection, declared: str, how: str
) -> None:
    value = {
        "i": 2**63 - 1,
        "d": Decimal("12345678901234567890.0123456789"),
        "f": math.nan,
        "s": 'a"\\\n\t\x01é😀',
        "b": b"\x00\\",
        "t": dt.datetime(2024, 2, 29, 12, 0, 0, 5, UTC),
        "l": [[dt.date(2024, 2, 29)], [], None],
        "m": [('k"', {"x": True}), ("", None)],
    }
    array = pa.array([value, None, {}], NESTED)
    read = (
        "array[v->>'i', v->>'d', v->>'f', v->>'s', encode((v->>'b')::bytea, 'hex'),"
        " extract(epoch from (v->>'t')::timestamptz)::text, (v->'l')::text,"
        " v->'m'->'k\"'->>'x', (v->'m'->'')::text]"
    )
    back = stored(connection, array, declared, f"case when v is not null then {read} end", how)
    assert back[0] == [
        "9223372036854775807",
        "12345678901234567890.0123456789",
        "NaN",
        'a"\\\n\t\x01é😀',
        "005c",
        "1709208000.000005",
        '[["2024-02-29"], [], null]' if declared == "jsonb" else '[["2024-02-29"],[],null]',
        "true",
        "null",
    ]
    assert back[1] is None
    assert back[2] == [None] * 6 + ["null"] + [None] * 2


def test_columns_left_out_get_their_defaults(connection: Connection) -> None:
    connection.execute("""
        create table t (a int, d text default 'x', i bigint generated always as identity,
                        g int generated always as (a * 2) stored)
    """)
    copy_in(connection, "t", pa.record_batch({"A": pa.array([1, 2], pa.int32())}))
    assert connection.execute("select * from t order by a").fetchall() == [
        (1, "x", 1, 2),
        (2, "x", 2, 4),
    ]


def test_an_empty_copy_is_complete(connection: Connection) -> None:
    connection.execute("create table t (a int, x text)")
    batch = pa.record_batch({"a": pa.array([], pa.int32()), "x": pa.array([], pa.string())})
    copy_in(connection, "t", batch)
    plan = plan_columns(batch.schema, read_table(connection, TableName("t")))
    encoder = plan.encoder()
    with connection.cursor().copy(plan.copy_statement()) as copy:
        copy.write(encoder.header() + encoder.finish())
    assert connection.execute("select count(*) from t").fetchone() == (0,)


def test_a_partitioned_table_is_written_like_any_other(connection: Connection) -> None:
    connection.execute("""
        create table t (a int, b text) partition by list (a);
        create table t1 partition of t for values in (1);
        create table t2 (b text, a int);
        alter table t attach partition t2 for values in (2)
    """)
    copy_in(connection, "t", pa.record_batch({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]}))
    assert connection.execute("select * from t2").fetchall() == [("y", 2)]


# Random batches over all types, in a table made for them.

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_SMALLEST, _LARGEST = naive(1, 1, 2), naive(9999, 12, 30)
_KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal128(38, 9), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: scaled(n, 9))),
    (pa.string(), _TEXT),
    (pa.binary(), st.binary(max_size=6)),
    (pa.date32(), st.dates()),
    (NAIVE, st.datetimes()),
    (MOMENT, st.datetimes(_SMALLEST, _LARGEST, timezones=st.just(UTC))),
    (pa.time64("us"), st.times()),
    (US, st.integers(-(2**62), 2**62).map(lambda n: dt.timedelta(microseconds=n))),
]  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Two batches of one schema; columns are scalars or lists of them."""
    rows = draw(st.integers(0, 5))
    names = draw(
        st.lists(st.text("aB \"'%é;", min_size=1, max_size=6), min_size=1, max_size=6, unique=True)
    )
    kinds = [draw(st.sampled_from(_KINDS)) for _ in names]
    fields, columns = [], []
    for name, (arrow, values) in zip(names, kinds, strict=True):
        if draw(st.booleans()):
            arrow, values = pa.list_(arrow), st.lists(st.none() | values, max_size=3)
        fields.append(pa.field(name, arrow))
        column = draw(st.lists(st.none() | values, min_size=2 * rows, max_size=2 * rows))
        columns.append(pa.array(column, arrow))
    whole = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return [whole.slice(0, rows), whole.slice(rows)]


@given(made=batches())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_batches_are_read_back_unchanged(
    connection: Connection, made: list[pa.RecordBatch]
) -> None:
    connection.execute("drop table if exists r, r2")
    name = TableName("r")
    schema = made[0].schema
    connection.execute(create_table_statement(schema, name))
    written = [tuple(row.values()) for batch in made for row in batch.to_pylist()]
    names = sql.SQL(", ").join(map(sql.Identifier, schema.names))
    copy_in(connection, "r", *made)
    read = sql.SQL("select {} from {}")
    rows = connection.execute(read.format(names, sql.Identifier("r")), binary=True).fetchall()
    assert rows == written
    # The same through the text format.
    connection.execute("create table r2 (like r); alter table r2 add column only_text inet")
    lone = pa.field("only_text", pa.string())
    texts = [batch.append_column(lone, pa.nulls(len(batch), pa.string())) for batch in made]
    assert copy_in(connection, "r2", *texts) == "text"
    rows = connection.execute(read.format(names, sql.Identifier("r2")), binary=True).fetchall()
    assert rows == written
