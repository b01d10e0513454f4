"""What a real server makes of whole tables, other types, nested values and random batches of a COPY."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from abs_clients.postgres.name import TableName
from abs_sinks.postgres.columns.create import create_table_statement
from abs_sinks.postgres.columns.plan import plan_columns
from abs_sinks.postgres.columns.table import read_table
from tests.sinks.postgres.copied import (
    BOTH,
    MOMENT,
    NAIVE,
    US,
    UTC,
    Connection,
    copy_in,
    naive,
    scaled,
    stored,
)

pytestmark = pytest.mark.services


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
