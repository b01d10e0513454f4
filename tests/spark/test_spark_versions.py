"""The same job on every release of Spark: three targets, killed, replayed, and exact.

Each release has the Python and the libraries of a runtime that people use, see ``other_sparks``.

``make test`` runs the oldest release, killed once; ``make matrix`` all of them, killed three times.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from abs_core.crash import CrashPoint
from abs_services import S3Service
from tests import sample
from tests.packaging.venvs import ROOT
from tests.spark import jvm
from tests.spark.bucket import Bucket
from tests.spark.drivers import Driver, killed_at
from tests.spark.epoch_world import EpochWorld, once
from tests.spark.other_sparks import OLDEST, RUNTIMES, Runtime
from tests.spark.test_spark_connect import ROOTS
from tests.spark.world import WAYS, World

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(1500)]

KILLS = (
    (CrashPoint.AFTER_PRE_COMMIT, 1),
    (CrashPoint.AFTER_DECIDE, 2),
    (CrashPoint.BETWEEN_COMMITS, 2),
)
FILES, ROWS = 4, 40
BY_WAY = [*product((RUNTIMES[0], RUNTIMES[-1]), WAYS), *zip(RUNTIMES[1:-1], WAYS, strict=True)]
"""Every protocol on the oldest and the newest release, and another one on each between them."""


@pytest.fixture
def bucket(store: S3Service, prefix: str) -> Bucket:
    """Its keys are in the environment, which drivers inherit."""
    return Bucket(store, prefix)


@pytest.fixture(params=RUNTIMES, ids=str)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    runtime: Runtime = request.param
    runtime.use(monkeypatch)
    return runtime.spark


@pytest.mark.parametrize("version", [OLDEST], ids=str, indirect=True)
@pytest.mark.parametrize("kill", sample.cut(KILLS[1:], 1, of="kills on the oldest Spark"))
def test_a_job_on_the_oldest_release_that_is_killed_and_replayed_is_exact_in_all_targets(
    tmp_path: Path, world: EpochWorld, version: str, kill: tuple[CrashPoint, int]
) -> None:
    kill_and_replay(tmp_path, world, version, [kill], runs=1)  # what Spark replays by itself


@pytest.mark.campaign
def test_a_job_that_is_killed_and_replayed_is_exact_in_all_targets(
    tmp_path: Path, world: EpochWorld, version: str
) -> None:
    kill_and_replay(tmp_path, world, version, KILLS, runs=2)


FITS = """
import pyarrow as pa
from abs_spark.schema import to_spark_schema, to_target_schema

def batch(zone):
    at = pa.array([0, None], pa.timestamp("us", zone))
    return pa.RecordBatch.from_arrays([pa.array([1, 2]), at], names=["id", "at"])

sent, told = batch("America/New_York"), batch("UTC")
for fitted in (to_target_schema(sent, told.schema), to_spark_schema(sent, told.schema)):
    assert fitted.equals(told) and fitted.schema.equals(told.schema), fitted.schema
"""


def test_batches_of_a_session_in_another_time_zone_fit_on_the_oldest_libraries() -> None:
    path = os.pathsep.join(str(ROOT / name) for name in ROOTS)
    command = [str(OLDEST.interpreter()), "-c", FITS]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)


NOTHING = """
import sys
from pyspark.sql import SparkSession
import abs_spark

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
abs_spark.register(spark)
reader = spark.read.format("abs-files").schema("id bigint").option("fileformat", "json")
assert reader.load(sys.argv[1]).collect() == []
"""


WRONG = """
import sys
from pyspark.sql import SparkSession
import abs_spark
from abs_core.errors import OptionError

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.schema("id bigint").json(sys.argv[1])
writer = rows.writeStream.format("abs-postgres").option("dbtable", "t").trigger(availableNow=True)
abs_spark.register(spark)
try:
    writer.option("url", "postgresql://nowhere.invalid/db").start(job="job", Protocoll="wal")
except OptionError as error:
    assert "protocol" in str(error), error
else:
    sys.exit("the query has begun")
"""
"""Fails where Spark's ``DataStreamWriter`` has other fields than ``datasource.early`` reads."""


WITH_FORMATS = pytest.mark.parametrize("runtime", RUNTIMES[3:], ids=str)


@pytest.mark.campaign
@WITH_FORMATS
def test_a_format_reads_a_folder_without_files_as_no_rows(tmp_path: Path, runtime: Runtime) -> None:
    run_on(runtime, NOTHING, tmp_path)


@pytest.mark.campaign
@WITH_FORMATS
def test_a_wrong_option_is_refused_by_start(tmp_path: Path, runtime: Runtime) -> None:
    run_on(runtime, WRONG, tmp_path)


def run_on(runtime: Runtime, script: str, folder: Path) -> None:
    python = str(runtime.interpreter())
    path = os.pathsep.join(str(ROOT / name) for name in ROOTS)
    variables = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": python}
    variables.pop(jvm.HOME, None)
    subprocess.run([python, "-c", script, str(folder)], env=variables, check=True)


def kill_and_replay(
    tmp_path: Path,
    world: EpochWorld,
    version: str,
    kills: Sequence[tuple[CrashPoint, int]],
    runs: int,
) -> None:
    job = world.job(scramble=True)
    world.files.add_files(range(FILES), ROWS)
    for point, nth in kills:
        killed_at(point, nth, job, tmp_path / f"killed-{point}", world.files.url)
    for number in range(runs):
        with Driver(job, tmp_path / f"run{number}", world.files.url) as driver:
            assert driver.end() == 0
            said = driver.log
        if number == 0:
            assert "was decided and is committed now" in said
            world.files.forget_commits(2)
    assert f"committed before; its {3 * ROWS} rows were read and not written again" in said
    assert re.search(rf"PySpark {re.escape(version)}\b", said)
    expected = once([file * 1000 + row for file in range(FILES) for row in range(ROWS)])
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
    assert world.left_behind() == []
    assert world.register().frontier == FILES - 1


@pytest.mark.campaign
@pytest.mark.parametrize("older", [RUNTIMES[0], RUNTIMES[3]], ids=str)
def test_a_query_goes_on_when_spark_is_upgraded_and_a_replayed_epoch_is_not_written_again(
    tmp_path: Path, world: EpochWorld, monkeypatch: pytest.MonkeyPatch, older: Runtime
) -> None:
    """The newer Spark reads the older one's log of offsets, and may write another form of it."""
    job = world.job(scramble=True)
    older.use(monkeypatch)
    world.files.add_files(range(2), ROWS)
    with Driver(job, tmp_path / "older", world.files.url) as driver:
        assert driver.end() == 0
        assert re.search(rf"PySpark {re.escape(older.spark)}\b", driver.log)
    world.files.forget_commits(1)
    RUNTIMES[-1].use(monkeypatch)
    world.files.add_files(range(2, FILES), ROWS)
    with Driver(job, tmp_path / "newer", world.files.url) as driver:
        assert driver.end() == 0
        said = driver.log
    assert f"committed before; its {3 * ROWS} rows were read and not written again" in said
    assert re.search(rf"PySpark {re.escape(RUNTIMES[-1].spark)}\b", said)
    expected = once([file * 1000 + row for file in range(FILES) for row in range(ROWS)])
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
    assert world.left_behind() == []


@pytest.mark.campaign  # by three sinks it is in `make test`
def test_a_job_by_one_sink_is_exact(tmp_path: Path, world: EpochWorld, version: str) -> None:
    sinks = [{"format": "abs-postgres", "options": {"dbtable": "t"}}]
    job = world.files.epoch_job(sinks)
    expected = world.files.add_files(range(3))
    killed_at(CrashPoint.AFTER_DECIDE, 2, job, tmp_path / "killed", world.files.url)
    with Driver(job, tmp_path / "run", world.files.url) as driver:
        assert driver.end() == 0
    world.files.holds(expected)
    assert world.files.left_behind() == []


@pytest.mark.campaign
@pytest.mark.parametrize(("version", "way"), BY_WAY, ids=str, indirect=["version"])
def test_a_job_by_one_sink_is_exact_in_every_protocol(
    tmp_path: Path, new_world: Callable[[str], World], version: str, way: str
) -> None:
    world = new_world(way)
    options = {"dbtable": "t", **WAYS[way]}
    job = replace(world.epoch_job([{"format": "abs-postgres", "options": options}]), scramble=True)
    expected = world.add_files(range(3))
    for nth, point in enumerate((CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_FORGET), 1):
        killed_at(point, nth, job, tmp_path / f"killed-{point}", world.url)
    for number in range(2):
        with Driver(job, tmp_path / f"run{number}", world.url) as driver:
            assert driver.end() == 0
        if number == 0:
            world.forget_commits(2)
    world.holds(expected)
    assert world.left_behind() == []
