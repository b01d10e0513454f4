"""The code of docs/how-to/your-own-write.md does what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.spark.jobs.own_write import RECIPES
from tests.spark.test_spark_snippets import blocks

pytestmark = [pytest.mark.spark, pytest.mark.services]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "your-own-write.md"
RECIPE, STREAM, BATCH, CHECK, CHAOS = (text for _, text in blocks(PAGE))
RUN = {
    "sqlite_upsert",
    "duckdb_merge",
    "postgresql_merge",
    "delta_merge",
    "delta_spark_merge",
    "clickhouse_insert",
    "http_service",
}
"""By test_spark_once_kills.py."""


@pytest.fixture
def place(
    spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The names that the page's code makes, after its recipe."""
    monkeypatch.setenv("ABS_POSTGRES_URL", database)
    folder = tmp_path / "data" / "payments"
    folder.mkdir(parents=True)
    rows = [{"account": 1, "amount": 10}, {"account": 2, "amount": 20}, {"account": 1, "amount": 5}]
    (folder / "one.json").write_text("\n".join(map(json.dumps, rows)))
    names: dict[str, Any] = {"spark": spark, "url": database}
    exec(RECIPE, names)
    return names


def placed(text: str, folder: Path) -> str:
    """With the test's places."""
    for there in ("/data/", "/checkpoints/"):
        for before in "\"' ":
            text = text.replace(f"{before}{there}", f"{before}{folder}{there}")
    return text


def run(text: str, names: dict[str, Any], folder: Path) -> None:
    exec(placed(text, folder), names)


def balances(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as db:
        return db.execute("SELECT * FROM balances ORDER BY account").fetchall()


def test_the_stream_and_the_batch_of_the_page_add_each_row_once(
    place: dict[str, Any], database: str, tmp_path: Path
) -> None:
    run(STREAM, place, tmp_path)
    assert balances(database) == [(1, 15), (2, 20)]
    run(BATCH, place, tmp_path)
    run(BATCH, place, tmp_path)
    assert balances(database) == [(1, 30), (2, 40)]


@pytest.mark.campaign
def test_the_pages_recipe_passes_the_check(place: dict[str, Any], tmp_path: Path) -> None:
    run(
        CHECK.replace("check_once(opened, batches)", "rules = check_once(opened, batches)"),
        place,
        tmp_path,
    )
    assert len(place["rules"]) == 8


@pytest.mark.campaign
def test_the_pages_job_is_exact_by_the_pages_own_command(
    place: dict[str, Any], database: str, tmp_path: Path
) -> None:
    """``place`` has one of the input's files."""
    for number in range(11):
        rows = [{"account": n % 5, "amount": number * 100 + n} for n in range(20)]
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / "data" / "payments" / f"{number}.json").write_text(text)
    (tmp_path / "job.py").write_text(placed(RECIPE + STREAM, tmp_path))
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", placed(CHAOS, tmp_path)],
        env={**os.environ, "PATH": tools, "ABS_POSTGRES_URL": database},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exactly once." in done.stdout
    assert "3 x SIGKILL" in done.stdout


def test_pipelines_have_no_sink_that_calls_a_function() -> None:
    """As the page says; what a newer release brings is tried then."""
    import pyspark.pipelines

    assert [name for name in pyspark.pipelines.__all__ if "sink" in name] == ["create_sink"]


def test_the_page_shows_the_recipe_and_says_which_ones_no_test_runs() -> None:
    assert (RECIPES / "postgresql_merge.py").read_text() == RECIPE
    page = PAGE.read_text()
    for recipe in RECIPES.glob("*.py"):
        [line] = [row for row in page.splitlines() if f"/once/{recipe.name}" in row]
        assert ("**not run here**" in line) == (recipe.stem not in RUN)
