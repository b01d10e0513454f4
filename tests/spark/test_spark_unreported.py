"""A query that is stopped before any task has reported ends its own run, and no other's."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from abs_core.certificate import Origin
from abs_core.model import Wrote
from abs_sinks.postgres.door import FORMAT
from abs_spark import run as runs
from abs_spark.datasource.stream import EpochMessage, StreamWriter
from abs_spark.names import Announced, RunName, run_of
from abs_spark.process.driver import driver_id
from abs_spark.sink_spec import SinkSpec
from tests import sample
from tests.spark.world import ARROW, JOB, World

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(4)]

QUERY, DRIVER = "the-query", "this-driver"


@pytest.fixture
def world(new_world: Callable[[str], World]) -> World:
    return new_world("2pc")


@pytest.fixture
def target(world: World, tmp_path: Path) -> SinkSpec:
    """Of a query whose checkpoint can be read."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    return target_of(world, {"checkpointLocation": str(checkpoint)})


def target_of(world: World, options: dict[str, str]) -> SinkSpec:
    return SinkSpec(FORMAT, FORMAT.parse({**world.job.options, "url": world.url, **options}), ARROW)


def stopped(target: SinkSpec, driver: str | None) -> None:
    """Spark calls the writer of its commit process, with no task's report."""
    writer_of(target, driver).abort([None, None], 0)


def writer_of(target: SinkSpec, driver: str | None = DRIVER) -> StreamWriter:
    return StreamWriter(target, "start", driver, Announced(), Origin(), None)


def test_its_run_is_told_by_the_register(world: World, target: SinkSpec) -> None:
    runs.attach(target, RunName(JOB, QUERY, run_of("run", DRIVER))).begin(0, Origin())
    stopped(target, DRIVER)
    assert world.generation() == 2


@sample.cases(2)
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
    world: World, target: SinkSpec, lineage: str, driver: str | None, asks: str | None
) -> None:
    runs.attach(target, RunName(JOB, lineage, run_of("run", driver))).begin(0, Origin())
    stopped(target, asks)
    assert world.generation() == 1


def test_a_checkpoint_that_cannot_be_read_tells_no_query(world: World, target: SinkSpec) -> None:
    runs.attach(target, RunName(JOB, QUERY, run_of("run", DRIVER))).begin(0, Origin())
    stopped(target_of(world, {}), DRIVER)
    assert world.generation() == 1


class HangsUp(logging.Handler):
    """Sends what Spark's daemon sends when the session ends, with each line that is logged."""

    lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1
        signal.raise_signal(signal.SIGHUP)


@pytest.mark.parametrize("ends", ["a commit", "an abort"])
def test_a_commit_process_is_not_ended_within_what_it_does_by_its_sessions_end(
    world: World, target: SinkSpec, ends: str
) -> None:
    told: list[int] = []
    name = RunName(JOB, QUERY, run_of("run", DRIVER))
    runs.attach(target, name).begin(0, Origin())
    log, hangs_up = logging.getLogger("abs_spark"), HangsUp()
    before = signal.signal(signal.SIGHUP, lambda number, _: told.append(number))
    log.addHandler(hangs_up)
    try:
        if ends == "an abort":
            stopped(target, DRIVER)
        else:
            share = Wrote(0, None)
            report = EpochMessage(name, 0, share, started=False, announced=Announced())
            writer_of(target).commit([report], 0)
        within, told[:] = told[:], []
        signal.raise_signal(signal.SIGHUP)
    finally:
        log.removeHandler(hangs_up)
        signal.signal(signal.SIGHUP, before)
    assert hangs_up.lines
    assert not within
    assert told == [signal.SIGHUP], "afterwards it ends as any other"


def test_a_driver_is_told_by_the_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/blockmgr-1")
    one = driver_id()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/blockmgr-2")
    assert one is not None
    assert driver_id() not in (None, one)


def test_folders_that_drivers_share_tell_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch")
    assert driver_id() is None
