"""Under Spark Connect: what it does not tell is asked for, or found out."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from tests.packaging.venvs import connect, python_with
from tests.roots import FOLDERS
from tests.spark import jvm
from tests.spark.jobs import connect_epochs, connect_listener, connect_once

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

ROOTS = ("", *FOLDERS)
TABLES = ("untold", "counts", "running", "single", "all", "small", "refused", "beside")


@pytest.mark.campaign
def test_under_connect_nothing_is_appended_that_classic_spark_would_refuse(
    tmp_path: Path, database: str
) -> None:
    two_files(tmp_path)
    with psycopg.connect(database, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f'create table "{table}" (id bigint, n bigint)')
        connection.execute("alter table running add primary key (id)")

    told, _ = run(connect_epochs, tmp_path, database)

    def held(table: str) -> list[tuple[int, int]]:
        with psycopg.connect(database, autocommit=True) as connection:
            return connection.execute(f'select id, n from "{table}" order by id, n').fetchall()

    print(told)
    assert told["running"] is told["counts"] is told["single"] is told["shared"] is None
    assert held("counts") == [(n, len(range(n, 20, 3))) for n in range(3)]
    assert held("running") == held("counts"), "the newest count of each key, by transformWithState"
    assert held("single") == [(n, n) for n in range(20)]
    assert held("all") == [(n, 2 * n) for n in range(20)]
    assert held("small") == [(n, n) for n in range(12)]

    assert "does not report its output mode here" in str(told["untold"])
    assert not held("untold")
    for name in ("window", "total", "exploded"):
        assert "is not computed from one row alone" in str(told[name])
    assert not held("refused") + held("beside")


@pytest.mark.campaign
def test_under_connect_a_listener_is_told_sparks_news_and_the_servers_observer_the_epochs(
    tmp_path: Path, database: str
) -> None:
    two_files(tmp_path)
    with psycopg.connect(database, autocommit=True) as connection:
        for table in ("epoch", "format"):
            connection.execute(f'create table "{table}" (id bigint)')
        connection.execute("create table refused (id bigint check (id < 0))")
    by_server = tmp_path / "told"
    observed = {
        "ABS_OBSERVE": f"{connect_listener.__name__}:observer",
        connect_listener.TOLD: str(by_server),
    }

    told, log = run(connect_listener, tmp_path, database, **observed)

    news: list[tuple[str, dict[str, Any]]] = [(kind, what) for kind, what in told["events"]]
    assert [(w["job"], w["epoch"], w["rows"]) for kind, w in news if kind == "BatchDone"] == [
        *(("epoch", 0, 10), ("epoch", 1, 10)),
        *(("format", 0, 10), ("format", 1, 10)),
    ]
    assert all(w["seconds"] > 0 for kind, w in news if kind == "BatchDone")
    ended = {w["job"]: w["why"] for kind, w in news if kind == "QueryEnded"}
    assert (ended["epoch"], ended["format"]) == (None, None)
    assert ended["refused"].startswith("RefusedError: ")
    assert "What to do: " in ended["refused"]
    assert {kind for kind, _ in news} == {"BatchDone", "QueryEnded"}, "Connect allows no more"
    assert log.count("under Spark Connect the events of the protocol (Committed and others)") == 1
    assert list(map(json.loads, by_server.read_text().splitlines())) == [
        *(["job-epoch", 0, 10], ["job-epoch", 1, 10]),
        *(["job-format", 0, 10], ["job-format", 1, 10]),
    ]


@pytest.mark.campaign
def test_under_connect_a_write_of_ones_own_is_guarded_as_elsewhere(
    tmp_path: Path, database: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        lines = "".join(f'{{"account": {n}, "amount": {10 + number}}}\n' for n in range(3))
        (tmp_path / "in" / f"{number}.json").write_text(lines)

    told, _ = run(connect_once, tmp_path, database)

    def held(job: str) -> dict[int, int]:
        with closing(sqlite3.connect(tmp_path / f"{job}.db")) as db:
            return dict(db.execute("select account, amount from balances"))

    print(told)
    for name in ("first", "replayed", "stateful", "lost reply", "day", "day again"):
        assert told[name] is None
    assert held("own") == held("state") == held("reply") == {0: 21, 1: 21, 2: 21}
    assert "Was the checkpoint of job own deleted" in str(told["another's"])
    assert held("days") == {1: 10, 2: 20}
    assert "written before, with other rows" in str(told["another day"])


def two_files(folder: Path) -> None:
    """Of ten ids each."""
    (folder / "in").mkdir()
    for number in range(2):
        lines = "".join(f'{{"id": {n}}}\n' for n in range(number * 10, number * 10 + 10))
        (folder / "in" / f"{number}.json").write_text(lines)


def run(job: ModuleType, folder: Path, url: str, **more: str) -> tuple[dict[str, Any], str]:
    """Run the queries of a job, with more environment; what it printed as JSON, and its errors."""
    python = python_with(*connect(), of="wheel")
    root = Path(__file__).parents[2]
    clean = {
        n: t for n, t in os.environ.items() if not n.startswith(("PYTHON", "PYSPARK", "SPARK_HOME"))
    }
    given = {
        "ABS_TEST_URL": url,
        "PYTHONPATH": os.pathsep.join(str(root / name) for name in ROOTS),
        "PYSPARK_PYTHON": str(python),
        "SPARK_REMOTE": "local[2]",
        "SPARK_LOCAL_IP": "127.0.0.1",
        jvm.OPTIONS: jvm.QUICK,
    }
    ended = subprocess.run(
        [str(python), str(job.__file__), str(folder)],
        env={**clean, **given, **more},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-6000:]
    lines = [line for line in ended.stdout.splitlines() if line.startswith('["')]
    return dict(map(json.loads, lines)), ended.stderr
