"""Every type of PostgreSQL arrives whole in an audit, and a value that differs is found."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from abs_audit import Files, audit
from abs_core.contracts import Task
from abs_core.model import JobState
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.sink import PostgresSink
from tests.audit.conftest import BY_ID
from tests.audit.postgres_table import HANDLE, Session, found, target

pytestmark = pytest.mark.services


# One row a type: the SQL literal, the Arrow value that is equal to it, and one that is not.
TYPES: dict[str, tuple[str, str, pa.Array, pa.Array]] = {
    "int2": ("int2", "'-32768'", pa.array([-32768], pa.int16()), pa.array([32767])),
    "int8": ("int8", "'9223372036854775807'", pa.array([2**63 - 1]), pa.array([2**63 - 2])),
    "int8 for unsigned": ("int8", "7", pa.array([7], pa.uint64()), pa.array([8], pa.uint64())),
    "oid": ("oid", "4294967295", pa.array([2**32 - 1]), pa.array([0])),
    "float4": ("float4", "0.1", pa.array([0.1], pa.float32()), pa.array([0.1])),
    "float8": ("float8", "5e-324", pa.array([5e-324]), pa.array([0.0])),
    "float8 NaN": ("float8", "'NaN'", pa.array([float("nan")]), pa.array([float("inf")])),
    "float8 infinity": ("float8", "'-Infinity'", pa.array([-float("inf")]), pa.array([-1e308])),
    "float8 minus zero": ("float8", "'-0'", pa.array([0.0]), pa.array([5e-324])),
    "numeric": (
        "numeric",
        "1234567890123456789012345678901234.5600",
        pa.array([Decimal("1234567890123456789012345678901234.56")]),
        pa.array([Decimal("1234567890123456789012345678901234.57")]),
    ),
    "numeric for integers": ("numeric(20)", "100", pa.array([100]), pa.array([1])),
    "numeric beyond duckdb": (
        "numeric",
        "1e-50",
        pa.array(["0." + "0" * 49 + "1"]),
        pa.array(["0"]),
    ),
    "numeric NaN": ("numeric", "'NaN'", pa.array(["NaN"]), pa.array(["0"])),
    "bool": ("bool", "true", pa.array([True]), pa.array([False])),
    "text": ("text", "E'a\\n\"b\",\\\\N\\t\\\\.'", pa.array(['a\n"b",\\N\t\\.']), pa.array(["a"])),
    "text empty": ("text", "''", pa.array([""]), pa.array([None], pa.string())),
    "text of COPY's end": ("text", "'\\.'", pa.array(["\\."]), pa.array([""])),
    "varchar": ("varchar(5)", "'\u00e9\u4e2d'", pa.array(["\u00e9\u4e2d"]), pa.array(["e"])),
    "char": ("char(5)", "'ab'", pa.array(["ab"]), pa.array(["a"])),
    "bytea": ("bytea", r"'\x00ff5c'", pa.array([b"\0\xff\\"]), pa.array([b"\0\xff"])),
    "bytea empty": ("bytea", "''", pa.array([b""]), pa.array([None], pa.binary())),
    "uuid": (
        "uuid",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        pa.array(["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
        pa.array(["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12"]),
    ),
    "uuid for bytes": (
        "uuid",
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        pa.array([bytes.fromhex("a0eebc999c0b4ef8bb6d6bb9bd380a11")]),
        pa.array([b"\0" * 16]),
    ),
    "date": ("date", "'9999-12-31'", pa.array([date(9999, 12, 31)]), pa.array([date(1, 1, 1)])),
    "date before Christ": (
        "date",
        "'0044-03-15 BC'",
        pa.array([-735_160], pa.date32()),
        pa.array([-735_159], pa.date32()),
    ),
    "date infinity": (
        "date",
        "'infinity'",
        pa.array([2**31 - 1], pa.date32()),
        pa.array([2**31 - 2], pa.date32()),
    ),
    "timestamp": (
        "timestamp",
        "'2024-02-29 23:59:59.999999'",
        pa.array([datetime(2024, 2, 29, 23, 59, 59, 999999, UTC)]),
        pa.array([datetime(2024, 2, 29, 22, 59, 59, 999999, UTC)]),
    ),
    "timestamptz": (
        "timestamptz",
        "'2024-03-31 03:00:00+02'",
        pa.array([datetime(2024, 3, 31, 1, tzinfo=UTC)]),
        pa.array([datetime(2024, 3, 31, 2, tzinfo=UTC)]),
    ),
    "timestamptz before Christ": (
        "timestamptz",
        "'0044-03-15 12:00:00.5+00 BC'",
        pa.array([(-735_160 * 86_400 + 43_200) * 1_000_000 + 500_000], pa.timestamp("us", "UTC")),
        pa.array([0], pa.timestamp("us", "UTC")),
    ),
    "timestamptz infinity": (
        "timestamptz",
        "'-infinity'",
        pa.array([-(2**63) + 1], pa.timestamp("us", "UTC")),
        pa.array([0], pa.timestamp("us", "UTC")),
    ),
    "time": ("time", "'23:59:59.999999'", pa.array([time(23, 59, 59, 999999)]), pa.array([time(1)])),
    "interval": (
        "interval",
        "'14 months -3 days 50:00:00.5'",
        pa.array([(14, -3, 180_000_500_000_000)], pa.month_day_nano_interval()),
        pa.array([(14, -3, 180_000_000_000_000)], pa.month_day_nano_interval()),
    ),
    "interval for a duration": (
        "interval",
        "'-00:01:30'",
        pa.array([-90], pa.duration("s")),
        pa.array([90], pa.duration("s")),
    ),
    "jsonb for a struct": (
        "jsonb",
        """'{"b": [1.50, null, "NaN"], "a": "2024-01-01T00:00:00Z", "c": 10}'""",
        pa.array(
            [{"a": datetime(2024, 1, 1, tzinfo=UTC), "b": [1.5, None, float("nan")], "c": 10}],
            pa.struct(
                {"a": pa.timestamp("us", "UTC"), "b": pa.list_(pa.float64()), "c": pa.int8()}
            ),
        ),
        pa.array([{"a": 0, "b": [1.5, None, 0.0], "c": 10}]),
    ),
    "jsonb for a map": (
        "jsonb",
        """'{"k": 1, "l": null}'""",
        pa.array([[("l", None), ("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    ),
    "jsonb for text": ("jsonb", """'{"a": 1.0}'""", pa.array(['{"a":1}']), pa.array(['{"a":"1"}'])),
    "json": ("json", """'[1,  2]'""", pa.array([[1, 2]]), pa.array([[1, 2, 3]])),
    "an array": (
        "int4[]",
        "'{1,NULL,3}'",
        pa.array([[1, None, 3]]),
        pa.array([[1, 3]]),
    ),
    "an array of arrays": ("text[]", "'{{a,b},{c,NULL}}'", pa.array([[["a", "b"], ["c", None]]]),
        pa.array([[["a", "b", "c", None]]])),
    "an array of floats": (
        "float4[]",
        "'{0.1,NaN,-Infinity}'",
        pa.array([[0.1, float("nan"), -float("inf")]], pa.list_(pa.float32())),
        pa.array([[0.1, float("nan"), float("inf")]], pa.list_(pa.float32())),
    ),
    "an array of bytes": (
        "bytea[]",
        r"array['\x00ff'::bytea]",
        pa.array([[b"\0\xff"]]),
        pa.array([[b"\0"]]),
    ),
    "an array of numerics": (
        "numeric[]",
        "array[0.10]",
        pa.array([[Decimal("0.1")]]),
        pa.array([[Decimal("0.2")]]),
    ),
    "an enum": ("mood", "'good'", pa.array(["good"]), pa.array(["bad"])),
    "a domain": ("positive", "7", pa.array([7]), pa.array([8])),
    "inet, as the server writes it": ("inet", "'10.0.0.1'", pa.array(["10.0.0.1"]), pa.array([""])),
}  # fmt: skip


FILES = ("parquet", "arrow", "csv")


def file_of(kind: str) -> str:
    """The ending of a file that can hold such values."""
    if kind in ("numeric beyond duckdb", "numeric NaN"):
        return "csv"  # Arrow has no such decimals
    return "arrow" if TYPES[kind][0] == "interval" else "parquet"


def written(values: Mapping[str, pa.Array], path: Path) -> Files:
    """Row 1 with these values, and row 2 with none."""
    table = pa.table(
        {"id": [1, 2]} | {k: pa.concat_arrays([v, pa.nulls(1, v.type)]) for k, v in values.items()}
    )
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        lines = (table.column_names, *zip(*table.to_pydict().values(), strict=True))
        text = (",".join("" if v is None else str(v) for v in line) for line in lines)
        path.write_text("\n".join(text))
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    return Files((str(path),))


@pytest.mark.parametrize("kinds", [[k for k in TYPES if file_of(k) == f] for f in FILES], ids=FILES)
def test_each_type_arrives_whole(
    kinds: list[str], session: Session, database: str, tmp_path: Path
) -> None:
    """A column for each of them: those that differ are named, one by one."""
    session.execute(
        "create type mood as enum ('good', 'bad'); create domain positive as int4 check (value > 0)"
    )
    columns = ", ".join(f'"{kind}" {TYPES[kind][0]}' for kind in kinds)
    session.execute(f"create table t (id int4, {columns})")
    literals = ", ".join(TYPES[kind][1] for kind in kinds)
    session.execute(f"insert into t values (1, {literals}), (2{', null' * len(kinds)})")
    ending = file_of(kinds[0])
    same = written({kind: TYPES[kind][2] for kind in kinds}, tmp_path / f"same.{ending}")
    other = written({kind: TYPES[kind][3] for kind in kinds}, tmp_path / f"other.{ending}")
    for expected, changed in ((same, []), (other, kinds)):
        for report in (
            audit(expected, target(database), BY_ID),
            audit(target(database), expected, BY_ID),
        ):
            samples = report.differences.samples.get("corrupted", ())
            assert [name for one in samples for name in one.changed] == changed
            assert found(report) == ({"corrupted": 1} if changed else {}), report.to_dict()


WRITTEN = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "tiny": pa.array([-128, None, 127], pa.int8()),
        "large": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "real": pa.array([0.1, float("nan"), None], pa.float32()),
        "double": [5e-324, -0.0, float("inf")],
        "decimal": pa.array([Decimal("0.5"), None, Decimal("-0.05")], pa.decimal128(38, 37)),
        "fraction": pa.array([Decimal("0.5"), None, Decimal("-0.05")], pa.decimal128(2, 2)),
        "text": ['é"\\\n,\t', "", None],
        "bytes": [b"\0\xff\\", b"", None],
        "yes": [True, None, False],
        "day": [date(1, 1, 1), date(9999, 12, 31), None],
        "moment": pa.array([-1, 253_402_300_799_999_999, None], pa.timestamp("us", "UTC")),
        "clock": pa.array([-1, 10**15, None], pa.timestamp("us")),
        "span": pa.array([-1, 10**12, None], pa.duration("us")),
        "months": pa.array([(14, 0, 0), (-1, 0, 0), None], pa.month_day_nano_interval()),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "grid": pa.array([[["a"], ["b"]], [["c,"], [None]], None], pa.list_(pa.list_(pa.string()))),
        "map": pa.array([[("k", 0.1), ("l", None)], [], None], pa.map_(pa.string(), pa.float32())),
        "struct": pa.array(
            [{"i": 1, "d": Decimal("0.10"), "t": -1, "b": b"\xff", "l": [{"x": "é\n"}]}, {}, None],
            pa.struct(
                {
                    "i": pa.int64(),
                    "d": pa.decimal128(38, 18),
                    "t": pa.timestamp("us", "UTC"),
                    "b": pa.binary(),
                    "l": pa.list_(pa.struct({"x": pa.string(), "day": pa.date32()})),
                }
            ),
        ),
    }
)


def test_all_that_the_sink_can_write_is_audited_clean(database: str, tmp_path: Path) -> None:
    options = {"url": database, "dbtable": "t", "createtable": "true"}
    sink = PostgresSink(PostgresOptions.parse(options), WRITTEN.schema)
    state = JobState(HANDLE.register, HANDLE.job, sink.target_id, "l", 1, "run")
    sink.register().compare_and_set(HANDLE.job, None, state)
    writer = sink.writer(Task(HANDLE.register, HANDLE.job, 1, 7, 0, "a1"))
    for batch in WRITTEN.to_batches():
        writer.write(batch)
    committable = writer.pre_commit()
    assert committable is not None
    sink.committer().commit([committable])
    with pa.ipc.new_file(tmp_path / "e.arrow", WRITTEN.schema) as file:
        file.write_table(WRITTEN)
    expected = Files((str(tmp_path / "e.arrow"),))
    report = audit(expected, target(database), BY_ID)
    assert report.clean, report.to_dict()
    assert report.differences.actual == 3
    # And of each column a change is seen.
    others = WRITTEN.schema.names[1:]
    with psycopg.connect(database) as session:
        nulls = sql.SQL(", ").join(sql.SQL("{} = null").format(sql.Identifier(n)) for n in others)
        session.execute(sql.SQL("update t set {} where id = 1").format(nulls))
    report = audit(expected, target(database), BY_ID)
    assert list(report.differences.samples["corrupted"][0].changed) == others
    sink.close()


def test_a_text_that_begins_with_the_sign_of_a_mark_keeps_it(
    session: Session, database: str, tmp_path: Path
) -> None:
    session.execute("create table t (v text); insert into t values (U&'\\FEFFa')")
    for text, clean in (("\ufeffa", True), ("a", False)):
        pq.write_table(pa.table({"v": [text]}), tmp_path / "e.parquet")
        assert audit(Files((str(tmp_path / "e.parquet"),)), target(database)).clean is clean


def test_a_column_of_nulls_alone_keeps_its_rows(
    session: Session, database: str, tmp_path: Path
) -> None:
    session.execute("create table t (v text); insert into t values (null), (null), ('')")
    pq.write_table(pa.table({"v": [None, "", None]}), tmp_path / "e.parquet")
    report = audit(Files((str(tmp_path / "e.parquet"),)), target(database))
    assert report.clean
    assert report.differences.actual == 3
