"""What is in doubt on PostgreSQL, and what the role cannot see, makes an audit unclean."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_audit import Files, Report, audit
from abs_core.contracts import Task
from abs_core.errors import (
    RefusedError,
)
from abs_core.model import Committable, Decision, JobState
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.register import PostgresRegister
from abs_sinks.postgres.sink import PostgresSink
from tests.audit.conftest import BY_ID
from tests.audit.postgres_table import HANDLE, Session, found, target

pytestmark = pytest.mark.services


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
        HANDLE.job, None, JobState(HANDLE.register, HANDLE.job, sink.target_id, "l", 1, "run")
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
