"""PostgreSQL as the target: planted bugs, types, what is left behind, and servers that go away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from abs_audit import AuditSettings, Files, PostgresTable, Report, audit
from abs_clients.postgres.address import Address
from abs_clients.postgres.name import TableName
from abs_core.contracts import Task
from abs_core.errors import (
    ContentionError,
    OptionError,
    RefusedError,
    RowError,
    TargetError,
    UnavailableError,
)
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.register import PostgresRegister
from abs_sinks.postgres.sink import PostgresSink
from tests.audit.conftest import BY_ID

pytestmark = pytest.mark.services

Session = psycopg.Connection[Any]
HANDLE = HandleName("0123456789abcdef", "job", 1, 7, 0, "a1")

ROWS = 1000
CREATE = """
create table t (id int8, name text, amount float8, at timestamptz, day date);
insert into t select i, nullif('name ' || i, 'name 7'), i / 3.0, to_timestamp(i * 1000.5),
                     date '2024-01-01' + i
  from generate_series(1, 1000) i;
"""


@pytest.fixture
def session(database: str) -> Iterator[Session]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def expected(session: Session, tmp_path: Path) -> Files:
    """The table as it should be, in a file; made by psycopg, not by the audit's own reader."""
    session.execute(CREATE)
    rows = session.execute("select * from t").fetchall()
    names = ["id", "name", "amount", "at", "day"]
    types = [pa.int64(), pa.string(), pa.float64(), pa.timestamp("us", "UTC"), pa.date32()]
    columns = zip(*rows, strict=True)
    table = pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})
    pq.write_table(table, tmp_path / "expected.parquet")
    return Files((str(tmp_path / "expected.parquet"),))


def target(url: str, name: str = "t", **options: Any) -> PostgresTable:
    return PostgresTable(Address.parse(url), TableName.parse(name), **options)


@pytest.fixture
def audited(database: str, expected: Files) -> Callable[..., Report]:
    def run(**options: Any) -> Report:
        return audit(expected, target(database), BY_ID, **options)

    return run


def found(report: Report) -> dict[str, int]:
    kinds = ("missing", "duplicate", "unexpected", "corrupted")
    return {kind: n for kind, n in report.differences.figures().items() if kind in kinds and n}


PLANTED: dict[str, tuple[str, dict[str, int]]] = {
    "a duplicate": ("insert into t select * from t where id = 5", {"duplicate": 1}),
    "a loss": ("delete from t where id = 5", {"missing": 1}),
    "an unexpected record": ("insert into t values (0)", {"unexpected": 1}),
    "two values swapped between rows": (
        "update t set name = case id when 5 then 'name 6' else 'name 5' end where id in (5, 6)",
        {"corrupted": 2},
    ),
    "a duplicated pair that a loss makes up for": (
        "insert into t select * from t where id in (5, 6); delete from t where id in (8, 9)",
        {"missing": 2, "duplicate": 2},
    ),
    "a value that became null": ("update t set name = null where id = 5", {"corrupted": 1}),
    "a null that became empty": ("update t set name = '' where id = 7", {"corrupted": 1}),
    "truncated text": ("update t set name = left(name, 3) where id = 5", {"corrupted": 1}),
    "a float rounded to 15 digits": (
        "update t set amount = round(amount::numeric, 15)::float8 where id = 1",
        {"corrupted": 1},
    ),
    "a NaN": ("update t set amount = 'NaN' where id = 5", {"corrupted": 1}),
    "a timestamp shifted by an hour": (
        "update t set at = at + interval '1 hour' where id = 5",
        {"corrupted": 1},
    ),
    "a day shifted": ("update t set day = day - 1 where id = 5", {"corrupted": 1}),
    "an epoch written twice": ("insert into t select * from t", {"duplicate": ROWS}),
}


def test_a_right_table_is_clean(audited: Callable[..., Report]) -> None:
    report = audited()
    assert report.clean
    assert report.differences.actual == ROWS
    assert report.reads == 2


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_and_named(
    bug: str, session: Session, audited: Callable[..., Report]
) -> None:
    statements, findings = PLANTED[bug]
    session.execute(statements)
    report = audited()
    assert found(report) == findings
    assert not report.clean


def test_a_duplicate_after_the_first_read_is_found(
    session: Session, database: str, audited: Callable[..., Report]
) -> None:
    def look_and_be_late() -> Any:
        seen = target(database).left_behind()
        session.execute(
            "insert into t select * from t where id = 5 and 1000 = (select count(*) from t)"
        )
        return seen

    report = audited(left_behind=look_and_be_late)
    assert found(report) == {"duplicate": 1}
    assert report.moved == 1
    assert not report.clean


def test_a_prepared_orphan_is_found_and_makes_the_audit_unclean(
    session: Session, audited: Callable[..., Report]
) -> None:
    prepare(session, str(HANDLE), "insert into t values (5)")
    report = audited()
    assert report.differences.none
    assert not report.clean
    assert report.left_behind is not None
    (orphan,) = report.left_behind.prepared
    assert (orphan.gid, orphan.on_table) == (str(HANDLE), True)
    session.execute(f"commit prepared '{HANDLE}'")
    assert found(audited()) == {"duplicate": 1}


def test_a_prepared_orphan_of_another_table_is_told_and_no_doubt(
    session: Session, audited: Callable[..., Report]
) -> None:
    session.execute("create table other (id int8)")
    prepare(session, str(HANDLE), "insert into other select id from t")
    report = audited()
    assert report.clean
    assert report.left_behind is not None
    assert [p.on_table for p in report.left_behind.prepared] == [False]


def test_foreign_prepared_transactions_are_counted_apart(
    session: Session, audited: Callable[..., Report]
) -> None:
    session.execute("create table other (id int8)")
    prepare(session, "abs1", "insert into other values (1)")
    report = audited()
    assert report.clean
    assert report.left_behind is not None
    assert report.left_behind.foreign_prepared == 1
    # On the table itself it is a writer like any other.
    prepare(session, "else", "insert into t values (5)")
    report = audited()
    assert report.reasons == ("1 lock(s) of writers on the table",)


def prepare(session: Session, gid: str, statement: str) -> None:
    session.execute(f"begin; {statement}; prepare transaction '{gid}'")


def test_a_writer_that_has_not_ended_makes_the_audit_unclean(
    database: str, audited: Callable[..., Report]
) -> None:
    with psycopg.connect(database, application_name="late writer") as writer:
        writer.execute("insert into t values (5)")
        report = audited()
        assert not report.clean
        assert report.left_behind is not None
        assert any("late writer" in lock.holder for lock in report.left_behind.locks if lock.writes)
        writer.rollback()
    assert audited().clean


def test_a_reader_does_not_make_the_audit_unclean(
    database: str, audited: Callable[..., Report]
) -> None:
    with psycopg.connect(database) as reader:
        reader.execute("select count(*) from t")
        report = audited()
    assert report.clean
    assert report.left_behind is not None
    assert [lock.mode for lock in report.left_behind.locks] == ["AccessShareLock"]


def test_a_writer_of_a_partition_is_seen_from_the_partitioned_table(
    session: Session, database: str, tmp_path: Path
) -> None:
    session.execute(
        "create table p (id int8) partition by range (id);"
        "create table p1 partition of p for values from (0) to (10);"
        "create view v as select id from p;"
        "insert into p values (1)"
    )
    pq.write_table(pa.table({"id": [1]}), tmp_path / "e.parquet")
    prepare(session, str(HANDLE), "insert into p1 values (2)")
    for name in ("p", "p1", "v"):
        report = audit(Files((str(tmp_path / "e.parquet"),)), target(database, name), BY_ID)
        assert report.differences.none
        assert report.left_behind is not None
        assert [p.on_table for p in report.left_behind.prepared] == [True], name


def test_a_leftover_staging_table_with_rows_makes_the_audit_unclean(
    session: Session, audited: Callable[..., Report]
) -> None:
    session.execute("create schema abs; create table abs.s_left as select * from t limit 3")
    session.execute("create table abs.s_empty (id int8); create table abs.other (id int8)")
    report = audited()
    assert report.reasons == ("1 staging table(s) with rows",)
    assert report.left_behind is not None
    staging = {s.table: s.rows for s in report.left_behind.staging}
    assert staging == {'"abs"."s_empty"': 0, '"abs"."s_left"': 3}
    session.execute("truncate abs.s_left")
    assert audited().clean


def test_a_staging_table_of_any_name_is_known_by_its_comment(
    session: Session, audited: Callable[..., Report]
) -> None:
    session.execute("create schema abs; create table abs.anything as select 1 as id")
    assert audited().clean
    session.execute(f"comment on table abs.anything is '{HANDLE}'")
    assert audited().reasons == ("1 staging table(s) with rows",)


SINKS = [("2pc", "append"), ("wal", "append"), ("wal", "upsert")]


@pytest.mark.parametrize(("protocol", "write"), SINKS)
def test_what_a_sink_leaves_behind_is_seen_until_it_is_committed_or_swept(
    protocol: str,
    write: str,
    session: Session,
    database: str,
    expected: Files,
    audited: Callable[..., Report],
) -> None:
    session.execute("alter table t add primary key (id)")
    options = {"url": database, "dbtable": "t", "protocol": protocol, "write": write}
    if write == "upsert":
        options["key"] = "id"
    more = pq.read_table(expected.paths[0]).slice(0, 3).set_column(0, "id", pa.array([0, -1, -2]))
    sink = PostgresSink(PostgresOptions.parse(options), more.schema)
    sink.register().compare_and_set(
        HANDLE.job, None, JobState(HANDLE.register, HANDLE.job, sink.target, "l", 1, "run")
    )
    assert audited().clean
    writer = sink.writer(Task(HANDLE.register, HANDLE.job, 1, 7, 0, "a1"))
    for batch in more.to_batches():
        writer.write(batch)
    assert writer.pre_commit() is not None
    report = audited()
    assert report.differences.none
    assert not report.clean
    sink.committer().abort([HANDLE])
    assert audited().clean
    sink.close()


def test_an_open_decision_makes_the_audit_unclean(
    database: str, audited: Callable[..., Report]
) -> None:
    register = PostgresRegister(PostgresOptions.parse({"url": database, "dbtable": "t"}))
    decision = Decision("lineage", 7, 1, (Committable(HANDLE, 3, "sha256:00"),))
    state = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run", open=(decision,))
    version = register.compare_and_set("job", None, state)
    report = audited()
    assert report.reasons == ("1 open decision(s)",)
    assert report.left_behind is not None
    assert [(d.job, d.epoch) for d in report.left_behind.decisions] == [("job", 7)]
    finished = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run", frontier=7)
    assert isinstance(version, str)
    register.compare_and_set("job", version, finished)
    assert audited().clean


def test_a_register_of_an_unknown_release_is_a_blind_spot(
    session: Session, database: str, audited: Callable[..., Report]
) -> None:
    register = PostgresRegister(PostgresOptions.parse({"url": database, "dbtable": "t"}))
    state = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")
    register.compare_and_set("job", None, state)
    assert audited().clean
    session.execute("""update abs.register set state = '{"version": 99}'""")
    assert "not checked" in audited().reasons[0]


@contextlib.contextmanager
def reader_role(admin_url: str, database: str, grants: str) -> Iterator[str]:
    """A role that may log in, and read what ``grants`` say; its URL, with a password."""
    parts = urlsplit(database)
    inside = urlunsplit(urlsplit(admin_url)._replace(path=parts.path))
    role = f"reader_{parts.path[1:]}"
    with psycopg.connect(inside, autocommit=True) as admin:
        admin.execute(f"create role {role} login password 'geheim'; {grants.format(role=role)}")
        try:
            host = parts.netloc.rpartition("@")[2]
            yield urlunsplit(parts._replace(netloc=f"{role}:geheim@{host}"))
        finally:
            admin.execute(f"drop owned by {role}; drop role {role}")


def test_what_the_role_may_not_read_is_a_blind_spot(
    session: Session, database: str, postgres: Any, expected: Files
) -> None:
    PostgresRegister(PostgresOptions.parse({"url": database, "dbtable": "t"})).compare_and_set(
        "job", None, JobState("0" * 16, "job", "t", "l", 1, "run")
    )
    session.execute("create table abs.s_left as select 1 as id")
    grants = "grant select on t to {role}; grant usage on schema abs to {role}"
    with reader_role(postgres.admin_url, database, grants) as url:
        report = audit(expected, target(url), BY_ID)
    assert report.differences.none
    assert sum("permission denied" in reason for reason in report.reasons) == 2


def test_rows_that_a_policy_hides_are_an_error_and_not_a_loss(
    session: Session, database: str, postgres: Any, expected: Files
) -> None:
    session.execute(
        "alter table t enable row level security; create policy hiding on t using (id > 5)"
    )
    grants = "grant select on t to {role}"
    with (
        reader_role(postgres.admin_url, database, grants) as url,
        pytest.raises(RefusedError, match="row-level security"),
    ):
        audit(expected, target(url), BY_ID)


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


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_arrives_whole(kind: str, session: Session, database: str, tmp_path: Path) -> None:
    name, literal, same, other = TYPES[kind]
    session.execute(
        "create type mood as enum ('good', 'bad'); create domain positive as int4 check (value > 0)"
    )
    session.execute(f"create table t (id int4, v {name})")
    session.execute(f"insert into t values (1, {literal}), (2, null)")
    for value, corrupted in ((same, 0), (other, 1)):
        values = pa.concat_arrays([value, pa.nulls(1, value.type)])
        path = tmp_path / f"{corrupted}.parquet"
        if pa.types.is_interval(value.type) or pa.types.is_duration(value.type):
            path = tmp_path / f"{corrupted}.arrow"  # parquet has no such types
            with pa.ipc.new_file(path, pa.schema({"id": pa.int64(), "v": value.type})) as file:
                file.write_table(pa.table({"id": [1, 2], "v": values}))
        elif kind in ("numeric beyond duckdb", "numeric NaN"):
            path = tmp_path / f"{corrupted}.csv"  # nor has Arrow such decimals
            path.write_text(f"id,v\n1,{value[0]}\n2,\n")
        else:
            pq.write_table(pa.table({"id": [1, 2], "v": values}), path)
        report = audit(Files((str(path),)), target(database), BY_ID)
        assert found(report) == ({"corrupted": 1} if corrupted else {}), report.to_dict()
        turned = audit(target(database), Files((str(path),)), BY_ID)
        assert turned.differences.corrupted == corrupted


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
    state = JobState(HANDLE.register, HANDLE.job, sink.target, "l", 1, "run")
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


def test_a_column_of_nulls_alone_keeps_its_rows(
    session: Session, database: str, tmp_path: Path
) -> None:
    session.execute("create table t (v text); insert into t values (null), (null), ('')")
    pq.write_table(pa.table({"v": [None, "", None]}), tmp_path / "e.parquet")
    report = audit(Files((str(tmp_path / "e.parquet"),)), target(database))
    assert report.clean
    assert report.differences.actual == 3


def test_any_name_can_be_audited(session: Session, database: str, tmp_path: Path) -> None:
    session.execute(
        'create schema "S 1"; create table "S 1"."T""{x}" ("A ""b"", {c}" int, "%" int)'
    )
    session.execute('insert into "S 1"."T""{x}" values (1, 2)')
    pq.write_table(pa.table({'A "b", {c}': [1], "%": [2]}), tmp_path / "e.parquet")
    report = audit(
        Files((str(tmp_path / "e.parquet"),)),
        target(database, '"S 1"."T""{x}"'),
        AuditSettings(key=['A "b", {c}']),
    )
    assert report.clean


def test_two_tables_can_be_compared(session: Session, database: str, expected: Files) -> None:
    session.execute("create view v as select * from t")
    assert audit(target(database, "v"), target(database), BY_ID).clean


def test_a_missing_table_is_a_clear_error(database: str, expected: Files) -> None:
    with pytest.raises(OptionError, match='"no"'):
        audit(expected, target(database, "no"), BY_ID)


def test_a_lock_that_shuts_readers_out_is_waited_for_a_bounded_time(
    database: str, expected: Files
) -> None:
    with psycopg.connect(database) as other:
        other.execute("lock table t in access exclusive mode")
        began = monotonic()
        with pytest.raises(ContentionError, match="lock timeout"):
            audit(expected, target(database, locktimeout=0.1), BY_ID)
        assert 0.09 < monotonic() - began < 60.0


def test_a_backend_that_dies_in_the_middle_of_the_read_is_a_typed_error(
    session: Session, database: str, expected: Files
) -> None:
    session.execute(
        "create view dying as select id, case when id = 90000"
        " then pg_terminate_backend(pg_backend_pid()) end as dead, repeat('x', 100) as pad"
        " from generate_series(1, 200000) id"
    )
    with pytest.raises(UnavailableError, match="dying"):
        audit(expected, target(database, "dying"), AuditSettings(key=["id"], columns=["id"]))
    with pytest.raises(TargetError, match="dying"):
        audit(target(database, "dying"), target(database, "dying"), BY_ID)


def test_a_read_that_breaks_off_leaves_no_session_behind(session: Session, database: str) -> None:
    session.execute(
        "create view v as select i * 0.5::float8 as v from generate_series(1, 300000) i"
    )
    session.execute(
        "create view w as select (2^53)::int8 + i as v from generate_series(1, 300000) i"
    )
    whole = target(database, "w")
    with pytest.raises(RowError, match="'v'"):
        audit(whole, target(database, "v"))
    count = "select count(*) from pg_stat_activity where application_name = 'abs-audit'"
    assert session.execute(count).fetchone() == (0,)


def test_a_server_that_is_killed_between_two_reads_is_a_typed_error(
    postgres: Any, database: str, expected: Files
) -> None:
    def look() -> Any:
        seen = target(database).left_behind()
        postgres.kill()
        return seen

    try:
        with pytest.raises(UnavailableError, match="Cannot connect"):
            audit(expected, target(database), BY_ID, left_behind=look)
    finally:
        postgres.start()


def test_no_password_is_shown_anywhere(database: str) -> None:
    password = urlsplit(database).password
    assert password
    table = target(database)
    assert password not in repr(table) + str(table) + table.name
    wrong = urlunsplit(urlsplit(database)._replace(netloc="abs:geheim@127.0.0.1:1"))
    with pytest.raises(UnavailableError) as caught:
        audit(target(wrong), table)
    assert "geheim" not in str(caught.value) + repr(caught.value)
