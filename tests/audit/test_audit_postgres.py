"""PostgreSQL as the target of an audit: planted bugs, names, and servers that go away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_audit import AuditSettings, Files, Report, audit
from abs_core.errors import (
    ContentionError,
    OptionError,
    RowError,
    TargetError,
    UnavailableError,
)
from tests.audit.conftest import BY_ID
from tests.audit.postgres_table import ROWS, Session, found, target

pytestmark = pytest.mark.services


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
    deadline = monotonic() + 60.0  # the server ends a session a moment after its connection
    while session.execute(count).fetchone() != (0,):
        assert monotonic() < deadline


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
