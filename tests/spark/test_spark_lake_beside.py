"""Killed drivers write each epoch to PostgreSQL, Kafka and a table of the lake, beside its compaction.

Foreign readers then see each row once.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from abs_services import KafkaService
from abs_sinks.lake import committer as lake_committer
from abs_testing.case import within
from tests import sample
from tests.kit.crash_points import CO_COMMIT, RARE
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.kit.rest_catalog import rest_catalog
from tests.packaging.venvs import python_with
from tests.sinks.lake.tending import Beside
from tests.sinks.lake.test_lake_readers import duckdb_at
from tests.spark.drivers import Driver, Session, killed_at, until
from tests.spark.jobs.stream_files import Job, run_to_end, start
from tests.spark.lake import Lake
from tests.spark.test_spark_lake_readers import SPARK
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.services]

FILES, ROWS = 4, 40
KINDS = ("delta", "iceberg")
POINTS = sorted(set(CrashPoint) - CO_COMMIT - RARE)
MINUTES = 5


def expected(files: int = FILES) -> Counter[int]:
    return Counter(number * 1000 + row for number in range(files) for row in range(ROWS))


@dataclass
class Three:
    """A table in PostgreSQL, a topic, and a table of the lake.

    Args:
        files: makes input files, and has the database and its table.
    """

    files: World
    kafka: TopicHarness
    lake: Lake

    def job(self, **more: Any) -> Job:
        kafka = {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "topic": self.kafka.topic,
            "registertopic": self.kafka.options.registertopic,
        }
        select = ["cast(id as string) as key", "cast(id as string) as value"]
        lake = {**self.lake.given, "partitionby": "part"}
        sinks: list[dict[str, Any]] = [
            {"format": "abs-postgres", "name": "rows", "options": {"dbtable": "t"}},
            {"format": "abs-kafka", "name": "events", "options": kafka, "select": select},
            {
                "format": self.lake.format,
                "name": "lake",
                "options": lake,
                "select": ["*", "cast(id % 2 as string) as part"],
            },
        ]
        given = {"options": {"job": "job"}, "sinks": sinks, "scramble": True, **more}
        return replace(self.files.job, **given)

    def ids(self) -> dict[str, Counter[int]]:
        """What readers see; the table's by its own library and by DuckDB."""
        duckdb = duckdb_at(self.lake.kind, self.lake.place, "id")
        return {
            "postgresql": Counter(row[0] for row in self.files.rows()),
            "kafka": Counter(int(value) for _, value in self.kafka.read()),
            "lake": self.lake.ids(),
            "duckdb": Counter(row["id"] for row in duckdb),
        }

    def holds(self, wanted: Counter[int]) -> None:
        for reader, found in self.ids().items():
            missing, extra = wanted - found, found - wanted
            assert not missing, f"{reader}: {missing.total()} rows are missing: {list(missing)[:3]}"
            assert not extra, f"{reader}: {extra.total()} rows are too many: {list(extra)[:3]}"
        assert self.files.left_behind() == []
        assert self.kafka.leftovers("job") == []
        assert self.lake.staged() == []


@pytest.fixture
def new_three(
    new_world: Callable[[str], World], kafka: KafkaService, tmp_path: Path
) -> Iterator[Callable[[str], Three]]:
    """Makes the targets with a table of a kind."""
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc")) as topic:

        def make(kind: str, catalog: Mapping[str, str] | None = None) -> Three:
            return Three(new_world("2pc"), topic, Lake(kind, tmp_path, catalog))

        yield make


def killed_beside(spark: SparkSession, three: Three, point: CrashPoint, nth: int) -> None:
    three.files.add_files(range(FILES), ROWS)
    job = three.job()
    with Beside(three.lake.tend) as others:
        killed_at(point, nth, job, three.files.folder / "killed", three.files.url)
        run_to_end(spark, job, three.files.url)
        assert within(60, lambda: others.done[0] > 0)
    three.holds(expected())
    three.files.forget_commits(FILES - 1)
    run_to_end(spark, job, three.files.url)
    three.holds(expected())


@pytest.mark.parametrize("kind", KINDS)
def test_killed_between_two_commits_while_the_table_is_compacted_each_row_is_everywhere_once(
    spark: SparkSession, new_three: Callable[..., Three], kind: str
) -> None:
    killed_beside(spark, new_three(kind), CrashPoint.BETWEEN_COMMITS, 2)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_while_the_table_is_compacted_each_row_is_everywhere_once(
    spark: SparkSession, new_three: Callable[..., Three], kind: str, point: CrashPoint
) -> None:
    killed_beside(spark, new_three(kind), point, 1)


@pytest.mark.campaign
def test_a_commit_without_a_look_is_found(
    spark: SparkSession, new_three: Callable[..., Three], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted into this process, which finishes what a killed driver left."""
    three = new_three("iceberg")
    three.files.add_files(range(2), ROWS)
    job = three.job()
    killed_at(CrashPoint.AFTER_COMMIT, 1, job, three.files.folder / "killed", three.files.url)
    monkeypatch.setattr(lake_committer, "_is_in", lambda *args: False)
    run_to_end(spark, job, three.files.url)
    with pytest.raises(AssertionError, match="lake: 40 rows are too many"):
        three.holds(expected(2))


@pytest.mark.parametrize("kind", sample.members(KINDS, 1, "two drivers on a table"))
def test_a_driver_that_stood_still_while_another_went_on_changes_no_table(
    spark: SparkSession, new_world: Callable[[str], World], tmp_path: Path, kind: str
) -> None:
    """Both have the table's own register."""
    world, lake = new_world("2pc"), Lake(kind, tmp_path)
    world.add_files(range(2), ROWS)
    job = alone(world, lake)
    with Driver(job, world.folder / "stopped") as driver:
        driver.wait_until(lambda: (world.checkpoint / "commits" / "1").exists(), "it is idle")
        driver.stop()
        other = world.with_checkpoint_copy("other")
        world.add_files(range(2, FILES), ROWS)  # it has work to do as soon as it goes on
        other.forget_commits(1)
        run_to_end(spark, replace(job, continuous=False, checkpoint=str(other.checkpoint)))
        driver.go_on()
        assert driver.end() == 1
        assert "FencedError" in driver.log
    assert lake.ids() == expected()
    assert lake.staged() == []


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_of_two_drivers_on_copies_of_one_checkpoint_one_writes_to_the_table(
    spark: SparkSession, new_world: Callable[[str], World], tmp_path: Path, kind: str
) -> None:
    world, lake = new_world("2pc"), Lake(kind, tmp_path)
    world.add_files(range(2), ROWS)
    job = alone(world, lake)
    with Driver(job, world.folder / "first") as driver:
        driver.wait_until(lambda: (world.checkpoint / "commits" / "1").exists(), "it is idle")
        newer = world.with_checkpoint_copy("newer")
        newer.forget_commits(1)  # so that it has something to do, and takes over
        query = start(spark, replace(job, checkpoint=str(newer.checkpoint)))
        until(lambda: (newer.checkpoint / "commits" / "1").exists(), "the newer has taken over")
        world.add_files(range(2, FILES), ROWS)
        assert driver.end() == 1
        assert "FencedError" in driver.log
        last = newer.checkpoint / "commits" / str(FILES - 1)
        until(last.exists, "the newer has written the rest")
        query.stop()
    assert lake.ids() == expected()
    assert lake.staged() == []


def alone(world: World, lake: Lake) -> Job:
    given = {**lake.given, "job": "job"}
    return replace(world.job, format=lake.format, options=given, continuous=True)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_again_and_again_beside_sparks_own_compaction_each_row_is_everywhere_once(
    spark: SparkSession,
    new_three: Callable[..., Three],
    kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """They are delta-spark's and iceberg-spark's; Iceberg's table is in a REST catalog."""
    minutes = min(request.config.getoption("minutes") or MINUTES, MINUTES)
    with rest_catalog(tmp_path / "rest") as url:
        three = new_three(kind, {"type": "rest", "uri": url} if kind == "iceberg" else None)
        files, kills = 1, 0
        three.files.add_files(range(files), ROWS)
        run_to_end(spark, three.job(), three.files.url)  # makes the table
        with Tending(kind, url if kind == "iceberg" else three.lake.place, tmp_path) as tending:
            draw, end = random.Random(sample.seed()), time.monotonic() + 60 * minutes
            while time.monotonic() < end:
                folder = three.files.folder / f"killed-{kills}"
                job = three.job(continuous=True)
                with Driver(job, folder, three.files.url) as driver:
                    reached = three.files.frontier() + draw.randint(1, 4)
                    while three.files.frontier() < reached:
                        if files < three.files.frontier() + 5:
                            three.files.add_file(files, ROWS)
                            files += 1
                        assert not within(1.0, lambda: driver.has_ended), driver.log[-4000:]
                    within(draw.random(), lambda: False)
                    driver.kill()
                    kills += 1
            run_to_end(spark, three.job(), three.files.url)
            told = tending.result()
        three.holds(expected(files))
    print(
        f"{kind}: {kills} kills, {files} epochs, compacted {told['done']} times, lost {told['lost']}"
    )
    assert Counter(told["ids"]) == expected(files), "as Spark reads it"
    assert kills > minutes
    assert told["done"] > minutes


class Tending(Session):
    """``tend_lake.py`` on the Spark that its libraries are for."""

    def __init__(self, kind: str, place: str, folder: Path) -> None:
        self._stop_file = folder / "enough"
        python = python_with(*SPARK)
        script = Path(__file__).with_name("jobs") / "tend_lake.py"
        names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        environment = {**os.environ, **dict.fromkeys(names, str(python))}
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        command = [str(python), str(script), kind, place, str(self._stop_file)]
        super().__init__(command, folder / "tending", environment, "log")

    def result(self) -> dict[str, Any]:
        """Have it look at the table a last time; what it tells."""
        self._stop_file.touch()
        assert self.end() == 0, self.log[-4000:]
        [told] = [line for line in self.log.splitlines() if line.startswith('{"done"')]
        found: dict[str, Any] = json.loads(told)
        return found
