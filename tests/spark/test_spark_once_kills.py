"""A write of the user's own, killed anywhere, over targets that are not ours; judged by their content.

The recipes are those of docs/how-to/your-own-write.md.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from tests.kit.keyed_service import KeyedService, keyed_service
from tests.spark.drivers import interpreter, until
from tests.spark.jobs import check_clickhouse
from tests.spark.other_sparks import RUNTIMES
from tests.spark.own_world import READERS, OwnWorld

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.campaign]

POINTS = [CrashPoint.AFTER_START, CrashPoint.AFTER_DECIDE, CrashPoint.AFTER_COMMIT]
_NEWEST = next(runtime for runtime in RUNTIMES if runtime.spark == "4.1.1")
DELTA_SPARK = replace(
    _NEWEST, libraries=(*_NEWEST.libraries, f"deltalake=={deltalake.__version__}")
)
"""The newest that delta-spark has a release for."""
LINES = range(1, 10)
"""Of a recipe's write: the process dies before the line that it reaches as the nth one."""


CHDB = replace(_NEWEST, libraries=(*_NEWEST.libraries, "chdb==4.4.0"))


@pytest.fixture(params=sorted(set(READERS) - {"delta_spark_merge", "clickhouse_insert"}))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> OwnWorld:
    place = str(tmp_path / "target")
    if request.param == "postgresql_merge":
        place = request.getfixturevalue("database")
    return OwnWorld.of(tmp_path, request.param, place)


@pytest.fixture
def service() -> Iterator[KeyedService]:
    with keyed_service() as service:
        yield service


@pytest.mark.parametrize("point", [*POINTS, *LINES], ids=str)
def test_killed_anywhere_the_target_has_each_row_once(
    spark: SparkSession, world: OwnWorld, point: CrashPoint | int
) -> None:
    world.add_files(3)
    died = world.killed(point, 1)
    assert died or isinstance(point, int), "a recipe may have fewer lines, a run passes each point"
    world.run(spark)
    assert world.balances == world.expected


def test_killed_twice_the_version_stays_that_of_the_first_begin(
    spark: SparkSession, world: OwnWorld
) -> None:
    world.add_files(2)
    assert world.killed(CrashPoint.AFTER_DECIDE)
    (world.folder / "died").unlink()
    shutil.rmtree(world.folder / "killed")
    assert world.killed(3)
    world.run(spark)
    assert world.balances == world.expected


def test_of_two_drivers_the_older_one_writes_nothing_more(
    spark: SparkSession, world: OwnWorld
) -> None:
    world.add_files(2)
    with world.driver("older", continuous=True) as driver:
        driver.wait_until(lambda: (world.checkpoint / "commits" / "1").exists(), "it is idle")
        driver.stop()
        other = world.copied("other")
        world.add_files(2)
        world.run(spark, checkpoint=other)
        driver.go_on()
        driver.end()
        assert "ABS-FENCED" in driver.log
    assert world.balances == world.expected


def test_a_driver_that_stood_still_in_the_middle_of_its_write_is_the_second_of_two(
    spark: SparkSession, world: OwnWorld
) -> None:
    if world.job.recipe in ("duckdb_merge", "sqlite_upsert"):
        pytest.skip("a writer that stands still holds the file: nobody else can write")
    world.add_files(2)
    stands = world.folder / "died"
    with world.driver("older", line=2, died=str(stands), stands=True) as driver:
        until(lambda: stands.exists() or driver.has_ended, "it stands still")
        driver.stop()
        world.run(spark, checkpoint=world.copied("other"))
        done = world.balances
        assert done == world.expected
        driver.go_on()
        driver.end()
    assert world.balances == done


def test_replayed_epochs_and_deleted_or_restored_checkpoints(
    spark: SparkSession, world: OwnWorld
) -> None:
    world.add_files(3)
    world.run(spark)
    world.forget_commits(1)
    world.run(spark)
    assert world.balances == world.expected
    done, kept = world.balances, world.copied("kept")
    world.add_files(1)
    world.run(spark)
    done = world.balances
    shutil.rmtree(world.checkpoint)
    with pytest.raises(StreamingQueryException, match="Was the checkpoint of job own deleted"):
        world.run(spark)
    shutil.rmtree(world.checkpoint)
    shutil.copytree(kept, world.checkpoint)
    with pytest.raises(StreamingQueryException, match="ABS-REPLAY-MISMATCH"):
        world.run(spark)
    assert world.balances == done


def test_a_lost_register_is_refused(spark: SparkSession, world: OwnWorld) -> None:
    world.add_files(1)
    world.run(spark)
    shutil.rmtree(world.job.register)
    shutil.rmtree(world.checkpoint)
    with pytest.raises(StreamingQueryException, match="its target has epoch 0"):
        world.run(spark)
    assert world.balances == world.expected


@pytest.mark.parametrize("point", [*POINTS, *range(1, 7)], ids=str)
def test_killed_anywhere_delta_sparks_own_merge_adds_each_row_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: CrashPoint | int
) -> None:
    DELTA_SPARK.use(monkeypatch)
    world = OwnWorld.of(tmp_path, "delta_spark_merge", str(tmp_path / "target"))
    world.add_files(2)
    assert world.killed(point)
    world.run_alone("second")
    assert world.balances == world.expected
    world.forget_commits(1)
    world.run_alone("replay")
    assert world.balances == world.expected


@pytest.mark.parametrize("point", [*POINTS, *LINES], ids=str)
def test_killed_anywhere_clickhouse_has_each_row_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: CrashPoint | int
) -> None:
    CHDB.use(monkeypatch)
    world = OwnWorld.of(tmp_path, "clickhouse_insert", str(tmp_path / "target"))
    world.add_files(2)
    assert world.killed(point) or isinstance(point, int)
    world.run_alone("second")
    assert world.balances == world.expected
    world.forget_commits(1)
    world.run_alone("replay")
    assert world.balances == world.expected


def test_clickhouses_recipe_passes_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    CHDB.use(monkeypatch)
    checked = subprocess.run(
        [interpreter(), check_clickhouse.__file__], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr[-3000:]
    assert checked.stdout.count("a_write_that_stood_still") == 1


@pytest.mark.parametrize("point", [*POINTS, *range(1, 7)], ids=str)
def test_a_service_with_keys_has_each_row_once_although_it_is_asked_twice(
    spark: SparkSession, tmp_path: Path, service: KeyedService, point: CrashPoint | int
) -> None:
    world = OwnWorld.of(tmp_path, "http_service", service.host, promise="at least once")
    world.add_files(2)
    world.killed(point)
    world.run(spark)
    assert dict(service.balances) == world.expected
    assert len(service.keys) == 2
