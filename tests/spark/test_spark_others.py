"""A sink of another package, found by its entry point, in ``abs_spark.epoch`` and in the commands."""

from __future__ import annotations

import importlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import abs_spark
from abs_core.crash import CrashPoint
from abs_core.errors import OptionError
from tests.docs.test_write_a_sink import PACKAGE, install
from tests.kit.forked_command import ForkedCommand
from tests.spark.drivers import killed_at
from tests.spark.jobs.stream_files import run_to_end
from tests.spark.world import JOB, Row, World

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the SQLite sink of the docs is, for this process and for those that it starts."""
    site = tmp_path / "site-packages"
    install(PACKAGE, site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(str(site))
    return site


@pytest.fixture
def command(installed: Path) -> Iterator[ForkedCommand]:
    """``abs``, where the sink is installed."""
    with ForkedCommand(installed) as command:
        yield command


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE sales (id INTEGER, word TEXT)")
    return path


def sold(shop: Path) -> list[Any]:
    with closing(sqlite3.connect(shop)) as db:
        return db.execute("SELECT id, word FROM sales ORDER BY id").fetchall()


def test_a_killed_and_replayed_job_is_exact_in_it_and_in_postgres(
    installed: Path,
    command: ForkedCommand,
    shop: Path,
    tmp_path: Path,
    new_world: Callable[[str], World],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(installed))
    world = new_world("2pc")
    lite = {"path": str(shop), "dbtable": "sales", "patience": "30s"}
    job = world.epoch_job(
        [
            {"format": "abs-sqlite", "name": "sales", "options": lite, "select": ["id", "word"]},
            {"format": "abs-postgres", "name": "table", "options": {"dbtable": "t"}},
        ]
    )
    expected = world.add_files(range(3))
    killed_at(CrashPoint.BETWEEN_COMMITS, 1, job, tmp_path / "killed", world.url)
    torn = look(command, world, shop, "in-doubt", "list", "--json", fails=1)
    assert {one["fate"] for one in json.loads(torn)} == {"decided: will be committed"}
    run_to_end(spark, job, world.url)
    holds(world, shop, expected)
    world.forget_commits(1)
    run_to_end(spark, job, world.url)
    holds(world, shop, expected)
    assert json.loads(look(command, world, shop, "in-doubt", "list", "--json")) == []
    assert "sales" in look(command, world, shop, "register", "show", JOB)
    assert "each task's rows at once" in look(command, world, shop, "doctor")
    assert "CLEAN  2 reads" in look(command, world, shop, "audit")
    with closing(sqlite3.connect(shop)) as db:
        db.execute("DELETE FROM sales WHERE id < 1000")
        db.commit()
    told = look(command, world, shop, "audit", "--epochs", fails=1)
    assert "epoch 0 is committed; there are 0 rows in sales (40 expected)" in told


def holds(world: World, shop: Path, expected: list[Row]) -> None:
    world.holds(expected)
    assert sold(shop) == sorted((number, word) for number, word, _ in expected)
    assert world.left_behind() == []


def look(run: ForkedCommand, world: World, shop: Path, *command: str, fails: int = 0) -> str:
    """What a command says of both targets."""
    file = world.folder / "job.toml"
    sales = (PACKAGE / "job.toml").read_text().replace("/data/shop.db", str(shop))
    sales = sales.replace("/data/sales/*.json", world.job.input).replace(
        '"id"', '"id", columns = "word"'
    )
    audit = f'expected = "{world.job.input}", key = "id", columns = "word"'
    file.write_text(
        f'job = "{JOB}"\ncheckpointLocation = "{world.checkpoint}"\n{sales}'
        f'[sinks.table]\nformat = "abs-postgres"\n'
        f'options = {{ url = "{world.url}", dbtable = "t" }}\naudit = {{ {audit} }}\n'
    )
    code, said = run(world.folder, *command, "--sinks", str(file))
    assert code == fails, said
    return said


def test_spark_writes_to_its_format_as_to_ours(
    installed: Path, shop: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(installed))
    source = importlib.import_module("pyspark_abs_sqlite").DefaultSource
    spark.dataSource.register(source)
    given = {"path": str(shop), "dbtable": "sales", "job": "daily", "epoch": "1"}
    frame = spark.range(5).selectExpr("id", "'w' as word")
    for _ in range(2):
        frame.write.format("abs-sqlite").mode("append").options(**given).save()
    assert sold(shop) == [(number, "w") for number in range(5)], "written once under one token"


def test_its_options_are_checked_before_a_query_starts(installed: Path, shop: Path) -> None:
    given = {"path": str(shop), "dbtable": "sales"}
    told = repr(abs_spark.sink("abs-sqlite", given, name="lite"))
    assert f"table sales of {shop}: every row exactly once (protocol 2pc, write append)" in told
    with pytest.raises(OptionError, match="The option dbtable is missing"):
        abs_spark.sink("abs-sqlite", {"path": "x"})
    with pytest.raises(OptionError, match="The option patience must be a time"):
        abs_spark.sink("abs-sqlite", {**given, "patience": "soon"})


def test_a_format_that_is_not_installed_is_refused_with_those_that_are(installed: Path) -> None:
    with pytest.raises(OptionError) as refused:
        abs_spark.sink("abs-nothing", {})
    assert "abs-s3, abs-sqlite" in refused.value.remedy
