"""Types that a person names: values are compared by them where neither side has any."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_audit import AuditSettings, Files, Report, audit
from abs_audit.ddl import from_ddl, schema_of
from abs_core.errors import OptionError
from tests.audit.conftest import BY_ID

DDL = "id BIGINT, amount DECIMAL(12,2), at TIMESTAMP, note STRING"
WRITTEN = '{"id":1,"amount":727.1,"at":"2026-11-20T08:15:07Z"}\n{"id":2,"amount":5}\n'
BY_SPARK = '{"id":1,"amount":727.10,"at":"2026-11-20T08:15:07.000Z"}\n{"id":2,"amount":5.00}\n'


def json_of(path: Path, text: str) -> Files:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Files((str(path),))


def compared(folder: Path, expected: str, actual: str, ddl: str | None) -> Report:
    one, other = (json_of(folder / f"{n}.json", t) for n, t in enumerate((expected, actual)))
    schema = None if ddl is None else from_ddl(ddl)
    return audit(one, other, AuditSettings(key=["id"], schema=schema))


def test_two_json_sides_are_compared_by_the_named_types(tmp_path: Path) -> None:
    assert compared(tmp_path, WRITTEN, BY_SPARK, DDL).clean


def test_without_types_the_same_records_differ_as_text(tmp_path: Path) -> None:
    report = compared(tmp_path, WRITTEN, BY_SPARK, None)
    assert report.differences.corrupted == 2
    assert any("--schema" in note for note in report.notes)


@pytest.mark.parametrize(
    "changed",
    [
        BY_SPARK.replace("727.10", "727.11"),
        BY_SPARK.replace("07.000Z", "07.001Z"),
        BY_SPARK.replace('"id":2', '"id":2,"note":""'),
    ],
    ids=["decimal", "timestamp", "empty text is not null"],
)
def test_a_changed_value_is_found_with_types_too(tmp_path: Path, changed: str) -> None:
    assert compared(tmp_path, WRITTEN, changed, DDL).differences.corrupted == 1


def test_types_of_a_side_that_has_some_go_before_the_named_ones(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "amount": pa.array([0.1], pa.float64())})
    pq.write_table(table, tmp_path / "typed.parquet")
    text = json_of(tmp_path / "text.json", '{"id":1,"amount":0.1000000000000000055}\n')
    schema = from_ddl("id BIGINT, amount DECIMAL(38,20)")
    assert audit(
        Files((str(tmp_path / "typed.parquet"),)), text, AuditSettings(schema=schema)
    ).clean


@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "arrow"])
def test_a_column_in_the_names_of_folders_is_compared_where_it_is_expected(
    tmp_path: Path, kind: str
) -> None:
    target = _foldered(tmp_path / "target", kind)
    expected = pa.table({"id": [1, 2, 3], "day": ["2026-11-20", None, "a/b"]})
    pq.write_table(expected, tmp_path / "expected.parquet")
    report = audit(Files((str(tmp_path / "expected.parquet"),)), target, BY_ID)
    assert report.clean, report.differences
    assert "day" in report.columns

    wrong = expected.set_column(1, "day", pa.array(["2026-11-21", None, "a/b"]))
    pq.write_table(wrong, tmp_path / "expected.parquet")
    report = audit(Files((str(tmp_path / "expected.parquet"),)), target, BY_ID)
    assert report.differences.corrupted == 1


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_column_that_the_job_derived_for_its_folders_is_left_out_and_said(
    tmp_path: Path, kind: str
) -> None:
    target = _foldered(tmp_path / "target", kind)
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "expected.parquet")
    report = audit(Files((str(tmp_path / "expected.parquet"),)), target, BY_ID)
    assert report.clean
    assert report.left_out == ("day",)
    assert any("day" in note for note in report.notes)


def _foldered(root: Path, kind: str) -> Files:
    for number, value in ((1, "2026-11-20"), (2, "__HIVE_DEFAULT_PARTITION__"), (3, "a%2Fb")):
        folder = root / f"day={value}"
        folder.mkdir(parents=True)
        table = pa.table({"id": pa.array([number], pa.int64())})
        path = folder / f"part.{kind}"
        if kind == "parquet":
            pq.write_table(table, path)
        elif kind == "arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        else:
            path.write_text(f"id\n{number}\n" if kind == "csv" else f'{{"id":{number}}}\n')
    return Files((str(root),))


def test_ddl_is_read_as_spark_reads_it() -> None:
    text = "id BIGINT NOT NULL COMMENT 'a, b', `x y` dec(5), "
    text += "t ARRAY<STRUCT<a: INT, b:MAP<STRING,DATE>>>"
    assert from_ddl(text) == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("x y", pa.decimal128(5, 0)),
            (
                "t",
                pa.list_(pa.struct([("a", pa.int32()), ("b", pa.map_(pa.string(), pa.date32()))])),
            ),
        ]
    )


def test_a_schema_comes_from_a_file_of_ddl_or_from_parquet(tmp_path: Path) -> None:
    ddl, parquet = tmp_path / "schema.ddl", tmp_path / "sample.parquet"
    ddl.write_text("id BIGINT,\n  amount DECIMAL(12,2)\n")
    schema = pa.schema([("id", pa.int64()), ("amount", pa.decimal128(12, 2))])
    pq.write_table(schema.empty_table(), parquet)
    assert schema_of(str(ddl)) == schema_of(str(parquet)) == schema


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "id foo",
        "id int,",
        "id decimal(40,2)",
        "id int, id int",
        "a array<int",
        "a int)",
        "a decimal(",
        "a decimal(x)",
        "a int comment",
        "a map<int>",
        "no/such.ddl",
        "a " + "array<" * 99,
    ],
)
def test_what_is_no_schema_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(OptionError) as raised:
        schema_of(text)
    assert raised.value.remedy
