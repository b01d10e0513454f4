"""createtable: the table that is made fits the input that it was made for."""

from __future__ import annotations

import pyarrow as pa
import pytest

from abs_clients.postgres.name import TableName
from abs_core.errors import OptionError, SchemaError
from abs_sinks.postgres.columns.create import column_type, create_table_statement

T = TableName("t", "s")


@pytest.mark.parametrize(
    ("arrow", "declared"),
    [
        (pa.bool_(), "boolean"),
        (pa.int8(), "smallint"),
        (pa.int16(), "smallint"),
        (pa.int32(), "integer"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "numeric(20,0)"),
        (pa.float32(), "real"),
        (pa.float64(), "double precision"),
        (pa.decimal128(38, 18), "numeric(38,18)"),
        (pa.large_string(), "text"),
        (pa.dictionary(pa.int8(), pa.string()), "text"),
        (pa.binary(16), "bytea"),
        (pa.date32(), "date"),
        (pa.time64("ns"), "time"),
        (pa.timestamp("us"), "timestamp"),
        (pa.timestamp("us", tz="Asia/Tokyo"), "timestamptz"),
        (pa.duration("us"), "interval"),
        (pa.month_day_nano_interval(), "interval"),
        (pa.list_(pa.decimal128(10, 2)), "numeric(10,2)[]"),
        (pa.list_(pa.list_(pa.int32())), "jsonb"),
        (pa.list_(pa.struct([("a", pa.int8())])), "jsonb"),
        (pa.struct([("a", pa.int8())]), "jsonb"),
        (pa.map_(pa.string(), pa.int8()), "jsonb"),
    ],
    ids=str,
)
def test_every_type_has_the_column_type_of_the_same_meaning(
    arrow: pa.DataType, declared: str
) -> None:
    assert column_type(arrow) == declared


def test_what_is_never_null_and_what_is_in_the_key_is_not_null() -> None:
    schema = pa.schema(
        [pa.field("Id", pa.int64()), pa.field("a", pa.string(), nullable=False), ("b", pa.date32())]
    )
    assert create_table_statement(schema, T, key=["id", "b"]).as_string() == (
        'CREATE TABLE IF NOT EXISTS "s"."t" ("Id" bigint NOT NULL, "a" text NOT NULL, '
        '"b" date NOT NULL, PRIMARY KEY ("Id", "b"))'
    )


def test_names_are_quoted() -> None:
    schema = pa.schema([('x" int); drop table y; --', pa.int32())])
    made = create_table_statement(schema, TableName('t"', None)).as_string()
    assert made == ('CREATE TABLE IF NOT EXISTS "t""" ("x"" int); drop table y; --" integer)')


def test_every_type_without_a_column_type_is_listed() -> None:
    variant = pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})
    schema = pa.schema(
        [
            ("n", pa.null()),
            ("v", pa.struct([pa.field("value", pa.binary()), variant])),
            ("d", pa.decimal256(60, 2)),
            ("d", pa.int8()),
        ]
    )
    with pytest.raises(SchemaError) as refused:
        create_table_statement(schema, T)
    for part in ('"n": there is no column type for void', "VARIANT", "decimal256", "one name"):
        assert part in refused.value.what


@pytest.mark.parametrize(
    ("names", "why"), [(["x", "y"], "none"), (["a", "a"], "several"), (["Id", "ID"], "several")]
)
def test_a_key_that_is_unknown_or_unclear_is_refused(names: list[str], why: str) -> None:
    schema = pa.schema([(name, pa.int8()) for name in names])
    with pytest.raises(OptionError, match=why):
        create_table_statement(schema, T, key=["a" if "a" in names else "id"])


def test_a_name_that_the_server_would_cut_off_is_refused() -> None:
    with pytest.raises(OptionError, match="64 bytes"):
        create_table_statement(pa.schema([("ä" * 32, pa.int8())]), T)


def test_a_table_has_1_to_1600_columns() -> None:
    for count in (0, 1601):
        schema = pa.schema([(f"c{n}", pa.int8()) for n in range(count)])
        with pytest.raises(SchemaError, match=f"{count} columns"):
            create_table_statement(schema, T)
