"""Columns of the input against columns of the table: everything is settled before the first row."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest
from psycopg import sql

from abs_core.errors import SchemaError
from abs_sinks.postgres.columns.plan import CopyPlan, left_empty, plan_columns
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.columns.types import Column, PgType

INT4, INT8 = PgType(23, "int4", "integer"), PgType(20, "int8", "bigint")
TEXT = PgType(25, "text", "text", receive="textrecv")
INET = PgType(869, "inet", "inet")


def table(*columns: Column) -> CatalogTable:
    return CatalogTable("public", "t", 1, columns)


def problems(schema: pa.Schema, target: CatalogTable) -> list[str]:
    with pytest.raises(SchemaError) as refused:
        plan_columns(schema, target)
    return refused.value.what.split("\n  - ")[1:]


def test_columns_match_by_name_in_any_order() -> None:
    plan = plan_columns(
        pa.schema([("b", pa.string()), ("a", pa.int32())]),
        table(Column("a", INT4), Column("b", TEXT)),
    )
    assert [(c.position, c.column.name) for c in plan.columns] == [(0, "b"), (1, "a")]


def test_case_counts_only_where_the_table_has_both() -> None:
    schema = pa.schema([("ID", pa.int32())])
    assert plan_columns(schema, table(Column("id", INT4))).names == ("id",)
    both = table(Column("id", INT4, has_default=True), Column("ID", INT4))
    assert plan_columns(schema, both).names == ("ID",)
    (only,) = problems(pa.schema([("Id", pa.int32())]), both)
    assert "could be any of id, ID" in only


def test_two_input_columns_for_one_of_the_table_are_refused() -> None:
    target = table(Column("id", INT4))
    for names in (("id", "ID"), ("ID", "id"), ("id", "id")):
        (only,) = problems(pa.schema([(name, pa.int32()) for name in names]), target)
        assert "both mean" in only


def test_a_column_that_fills_itself_may_be_left_out() -> None:
    target = table(
        Column("a", INT4),
        Column("d", INT4, not_null=True, has_default=True),
        Column("i", INT8, not_null=True, identity="a"),
        Column("j", INT8, not_null=True, identity="d"),
        Column("g", INT4, generated=True),
    )
    assert plan_columns(pa.schema([("a", pa.int32())]), target).names == ("a",)


def test_a_column_that_nobody_fills_may_not_be_left_out() -> None:
    target = table(Column("a", INT4), Column("n", INT4, not_null=True), Column("m", TEXT))
    (required,) = problems(pa.schema([("a", pa.int32())]), target)
    assert '"n" integer NOT NULL has no default' in required


def test_columns_that_stay_null_are_known() -> None:
    target = table(Column("a", INT4), Column("m", TEXT), Column("d", INT4, has_default=True))
    assert left_empty(plan_columns(pa.schema([("a", pa.int32())]), target)) == ["m"]


def test_columns_that_the_server_computes_are_not_written() -> None:
    target = table(
        Column("a", INT4), Column("g", INT4, generated=True), Column("i", INT4, identity="a")
    )
    generated, identity = problems(
        pa.schema([("a", pa.int32()), ("g", pa.int32()), ("i", pa.int32())]), target
    )
    assert '"g" is generated' in generated
    assert '"i" is GENERATED ALWAYS AS IDENTITY' in identity
    by_default = table(Column("i", INT4, identity="d"))
    assert plan_columns(pa.schema([("i", pa.int32())]), by_default).names == ("i",)


def test_every_problem_is_listed_at_once() -> None:
    target = table(Column("a", INT4), Column("b", INT4, not_null=True), Column("c", TEXT))
    schema = pa.schema([("a", pa.int64()), ("c", pa.null()), ("x", pa.list_(pa.int8()))])
    with pytest.raises(SchemaError) as refused:
        plan_columns(schema, target)
    text = str(refused.value)
    assert '"a": bigint does not fit integer' in text
    assert '"x" (array<tinyint>) is not in the table' in text
    assert '"b" integer NOT NULL has no default' in text
    assert "a integer, b integer, c text" in text  # what the table has
    assert '"public"."t"' in text
    assert text.count("\n  - ") == 3


def test_only_nulls_do_not_fit_a_column_that_is_not_null() -> None:
    schema = pa.schema([("a", pa.null())])
    assert plan_columns(schema, table(Column("a", INT4))).names == ("a",)
    (only,) = problems(schema, table(Column("a", INT4, not_null=True)))
    assert "NOT NULL" in only


def test_an_input_without_columns_is_refused() -> None:
    assert problems(pa.schema([]), table()) == ["the input has no columns"]


def test_the_format_is_binary_unless_a_type_is_known_as_text_only() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int32())])
    binary = plan_columns(schema, table(Column("a", TEXT), Column("b", INT4)))
    text = plan_columns(schema, table(Column("a", INET), Column("b", INT4)))
    assert (binary.format, text.format) == ("binary", "text")


def test_the_statement_names_the_columns_in_plan_order_and_quotes_everything() -> None:
    target = replace(table(Column('a"b', INT4), Column("Select", TEXT)), name='t"; drop table x')
    plan = plan_columns(pa.schema([("Select", pa.string()), ('a"b', pa.int32())]), target)
    assert plan.copy_statement().as_string() == (
        'COPY "public"."t""; drop table x" ("Select", "a""b") FROM STDIN WITH (FORMAT BINARY)'
    )
    staged = plan.copy_statement(sql.Identifier("abs", "stage"))
    assert staged.as_string().startswith('COPY "abs"."stage" ("Select", ')


def test_a_plan_can_be_pickled() -> None:
    schema = pa.schema([("a", pa.list_(pa.int16()))])
    array = PgType(1005, "_int2", "smallint[]", element=PgType(21, "int2", "smallint"))
    plan = plan_columns(schema, table(Column("a", array)))
    again: CopyPlan = pickle.loads(pickle.dumps(plan))
    assert again == plan
    batch = pa.record_batch({"a": pa.array([[1], None], pa.list_(pa.int16()))})
    made = []
    for each in (plan, again):
        encoder = each.encoder()
        made.append(encoder.header() + encoder.encode(batch) + encoder.finish())
    assert made[0] == made[1]
