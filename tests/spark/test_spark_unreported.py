"""A query that is stopped before any task has reported ends its own run, and no other's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from abs_core.births.certificate import Origin
from abs_spark import run as runs
from abs_spark.driver import driver_id
from abs_spark.formats.postgres import FORMAT
from abs_spark.names import Announced, RunName, run_of
from abs_spark.stream import StreamWriter
from abs_spark.target import Target
from tests.spark.world import ARROW, JOB, World

pytestmark = [pytest.mark.spark, pytest.mark.services]

QUERY, DRIVER = "the-query", "this-driver"


@pytest.fixture
def world(new_world: Callable[[str], World]) -> World:
    return new_world("2pc")


@pytest.fixture
def target(world: World, tmp_path: Path) -> Target:
    """Of a query whose checkpoint can be read."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    return target_of(world, {"checkpointLocation": str(checkpoint)})


def target_of(world: World, options: dict[str, str]) -> Target:
    return Target(FORMAT, FORMAT.parse({**world.job.options, "url": world.url, **options}), ARROW)


def stopped(target: Target, driver: str | None) -> None:
    """Spark calls the writer of its commit process, with no task's report."""
    StreamWriter(target, "start", driver, Announced(), Origin(), None).abort([None, None], 0)


def test_its_run_is_told_by_the_register(world: World, target: Target) -> None:
    runs.attach(target, RunName(JOB, QUERY, run_of("run", DRIVER))).begin(0, Origin())
    stopped(target, DRIVER)
    assert world.generation() == 2


@pytest.mark.parametrize(
    ("lineage", "driver", "asks"),
    [
        (QUERY, "another", DRIVER),
        ("another-query", DRIVER, DRIVER),
        (QUERY, None, DRIVER),
        (QUERY, DRIVER, None),
    ],
)
def test_a_run_of_another_driver_or_query_is_left_alone(
    world: World, target: Target, lineage: str, driver: str | None, asks: str | None
) -> None:
    runs.attach(target, RunName(JOB, lineage, run_of("run", driver))).begin(0, Origin())
    stopped(target, asks)
    assert world.generation() == 1


def test_a_checkpoint_that_cannot_be_read_tells_no_query(world: World, target: Target) -> None:
    runs.attach(target, RunName(JOB, QUERY, run_of("run", DRIVER))).begin(0, Origin())
    stopped(target_of(world, {}), DRIVER)
    assert world.generation() == 1


def test_a_driver_is_told_by_the_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/blockmgr-1")
    one = driver_id()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/blockmgr-2")
    assert one is not None
    assert driver_id() not in (None, one)


def test_folders_that_drivers_share_tell_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch")
    assert driver_id() is None
