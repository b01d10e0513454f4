"""Each recipe of docs/how-to/your-own-write.md passes the page's own check, on Spark's own batches."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from abs_testing import OwnTarget, check_once
from tests.spark.drivers import interpreter
from tests.spark.jobs import check_delta_spark
from tests.spark.jobs.own_write import RECIPES, recipe
from tests.spark.own_world import READERS
from tests.spark.test_spark_once_kills import DELTA_SPARK

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.campaign]

TABLES = ("balances", "versions")

Restore = Callable[[], object]


def _keep_file(place: str) -> Restore:
    kept = shutil.copy(place, f"{place}.kept")

    def restore() -> None:
        shutil.copy(kept, place)

    return restore


def _keep_table(place: str) -> Restore:
    """By Delta's own RESTORE."""
    version = DeltaTable(place).version()
    return lambda: DeltaTable(place).restore(version)


def _keep_database(place: str) -> Restore:
    with psycopg.connect(place) as db:
        kept = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}

    def restore() -> None:
        with psycopg.connect(place) as db, db.cursor() as cursor:
            for name, rows in kept.items():
                cursor.execute(f"TRUNCATE {name}")
                cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s)", rows)

    return restore


KEEPERS: dict[str, Callable[[str], Restore]] = {
    "sqlite_upsert": _keep_file,
    "duckdb_merge": _keep_file,
    "delta_merge": _keep_table,
    "postgresql_merge": _keep_database,
}


class Target:
    """Opens a recipe's target, empty each time."""

    def __init__(self, name: str, folder: Path, database: str, text: str | None = None) -> None:
        self.name = name
        self.recipe = name
        self.folder = folder
        self.database = database
        self.numbers = count()
        if text is not None:
            (folder / f"{name}.py").write_text(text)
            self.recipe = str(folder / name)

    @contextmanager
    def opened(self) -> Iterator[OwnTarget]:
        place = str(self.folder / f"target{next(self.numbers)}")
        if self.name == "postgresql_merge":
            place = self.database
            with psycopg.connect(place) as db:
                db.execute("DROP TABLE IF EXISTS balances, versions")
        write, applied = recipe(self.recipe, place)
        assert applied is not None
        applied("nobody")  # some make their tables only when they connect

        def read() -> dict[int, int]:
            return READERS[self.name](place)

        yield OwnTarget(write, applied, read, lambda: KEEPERS[self.name](place))


@pytest.fixture
def batches(spark: SparkSession) -> list[DataFrame]:
    rows = ([(1, 10), (2, 20)], [(1, 5)])
    return [spark.createDataFrame(each, "account bigint, amount bigint") for each in rows]


@pytest.mark.parametrize("name", sorted(KEEPERS))
def test_a_recipe_passes_the_check(
    batches: list[DataFrame], tmp_path: Path, database: str, name: str
) -> None:
    assert len(check_once(Target(name, tmp_path, database).opened, batches)) == 8


@pytest.fixture
def by_delta_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the check of delta-spark's recipe."""
    DELTA_SPARK.use(monkeypatch)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, interpreter())  # the session of these tests names its own

    def run(*given: str) -> subprocess.CompletedProcess[str]:
        command = [interpreter(), check_delta_spark.__file__, *given]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_two_jobs_of_one_session_merge_their_own_batches(
    by_delta_spark: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    checked = by_delta_spark("delta_spark_merge")
    assert checked.returncode == 0, checked.stderr[-3000:]
    text = (RECIPES / "delta_spark_merge.py").read_text()
    for good, planted in (
        ('f"batch_{uuid4().hex}"', 'f"batch_{token.version}"'),
        ("df.createGlobalTempView(", "df.createOrReplaceGlobalTempView("),
        ("spark.catalog.dropGlobalTempView(batch)", "pass"),
    ):
        assert text.count(good) == 1
        text = text.replace(good, planted)
    (tmp_path / "planted.py").write_text(text)
    found = by_delta_spark(str(tmp_path / "planted"))
    assert found.returncode == 1
    assert "AssertionError" in found.stderr
    assert "/first" in found.stderr


def test_the_recipe_of_delta_spark_passes_the_check(
    by_delta_spark: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    checked = by_delta_spark()
    assert checked.returncode == 0, checked.stderr[-3000:]
    assert checked.stdout.count("a_target_that_is_restored") == 1


@pytest.mark.parametrize(
    ("good", "planted", "rule"),
    [
        ("for commit in table.history():", "for commit in []:", "that of lost rows"),
    ],
)
def test_a_bug_that_is_planted_in_the_recipe_of_delta_is_found(
    batches: list[DataFrame], tmp_path: Path, good: str, planted: str, rule: str
) -> None:
    text = (RECIPES / "delta_merge.py").read_text()
    assert text.count(good) == 1
    target = Target("delta_merge", tmp_path, "", text.replace(good, planted))
    with pytest.raises(AssertionError, match=rule):
        check_once(target.opened, batches)
