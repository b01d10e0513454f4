"""The event logs of killed Spark drivers are behaviours of the specification, see ``spec/trace.tla``.

For the campaign; ``tests/spec/test_traces.py`` checks logs that this file has recorded, into the folder
that ``ABS_RECORD_TRACES`` names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from abs_core import eventlog
from abs_core.crash import CrashPoint
from abs_core.model import JobState
from abs_sinks.door import format_named
from tests.kit.crash_points import CO_COMMIT, RARE, TWO_STEP
from tests.spark.drivers import Driver, killed_at
from tests.spark.epoch_world import JOB, EpochWorld
from tests.spark.jobs.stream_files import Job
from tests.spark.lake import Lake
from tests.spark.world import World
from tests.spec.traces import KILLED, SHAPES, Trace, add, check_accepted, gone, left, read

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.campaign,
    pytest.mark.usefixtures("store"),
]

FILES = 3


def postgres(protocol: str) -> Callable[[EpochWorld], Job]:
    upsert = {"write": "upsert", "key": "id"} if protocol == "idempotent" else {}
    options = {"dbtable": "t", "protocol": protocol, "job": JOB, **upsert}
    return lambda world: replace(world.files.job, options=options)


def kafka(protocol: str) -> Callable[[EpochWorld], Job]:
    def made(world: EpochWorld) -> Job:
        whole = world.job(protocol)
        sink = whole.sinks[1]
        options = {**sink["options"], "job": JOB}
        if protocol == "wal":
            options["wal"] = (world.files.folder / "wal").as_uri()
        return replace(whole, sinks=[], format="abs-kafka", options=options, select=sink["select"])

    return made


def s3(protocol: str) -> Callable[[EpochWorld], Job]:
    def made(world: EpochWorld) -> Job:
        options = {**world.bucket.options, "protocol": protocol, "job": JOB}
        return replace(world.files.job, format="abs-s3", options=options)

    return made


def lake(kind: str) -> Callable[[EpochWorld], Job]:
    def made(world: EpochWorld) -> Job:
        table = Lake(kind, world.files.folder)
        return replace(world.files.job, format=table.format, options={**table.given, "job": JOB})

    return made


def state(job: Job, world: EpochWorld) -> JobState:
    """The job's register, read from its system."""
    system = format_named(job.format)
    more = {"url": world.files.url, "dbtable": "t"} if job.format == "abs-postgres" else {}
    stored = system.administer(system.parse({**more, **job.options}))[0].load(JOB)
    assert stored is not None
    return stored.state


JOBS: dict[str, Callable[[EpochWorld], Job]] = {
    "postgres-2pc": postgres("2pc"),
    "postgres-wal": postgres("wal"),
    "postgres-idempotent": postgres("idempotent"),
    "kafka-2pc": kafka("2pc"),
    "kafka-wal": kafka("wal"),
    "s3-2pc": s3("2pc"),
    "s3-wal": s3("wal"),
    "s3-idempotent": s3("idempotent"),
    "kafka-idempotent": kafka("idempotent"),
    "delta-2pc": lake("delta"),
    "iceberg-2pc": lake("iceberg"),
    "three-2pc": lambda world: world.job(),
}

CASES = [
    (way, point)
    for way, shape in SHAPES.items()
    if way in JOBS
    for point in CrashPoint
    if point not in RARE and point not in (TWO_STEP if shape.cocommits else CO_COMMIT)
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all drivers write their events."""
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("ABS_OBSERVE", "abs_core.eventlog:to_file")
    monkeypatch.setenv(eventlog.VARIABLE, str(path))
    return path


def made(way: str, world: EpochWorld) -> tuple[Job, str | None]:
    """The job, and the address of its database, on an empty target and some input."""
    world.files.add_files(range(FILES))
    job = replace(JOBS[way](world), scramble=True)
    if "key" in job.options:
        world.files.alter(f"add primary key ({job.options['key']})")
    return job, world.files.url if job.sinks or job.format == "abs-postgres" else None


def to_its_end(job: Job, folder: Path, url: str | None) -> None:
    with Driver(job, folder, url) as driver:
        assert driver.end() == 0, driver.log[-4000:]


def check(log: Path, way: str, name: str, last: JobState, folder: Path) -> None:
    """The log is a behaviour of the specification; it is kept, where a folder for that is named."""
    add(log, left(last))
    if kept := os.environ.get("ABS_RECORD_TRACES"):
        shutil.copy(log, Path(kept) / f"{way}-{name}.jsonl")
    check_accepted(Trace(read(log), SHAPES[way]), folder / "tlc")


@pytest.mark.parametrize(("way", "point"), CASES)
def test_a_killed_driver_s_log_is_a_behaviour_of_the_specification(
    way: str, point: CrashPoint, world: EpochWorld, log: Path, tmp_path: Path
) -> None:
    job, url = made(way, world)
    nth = 1 if point is CrashPoint.AFTER_START else 2
    killed_at(point, nth, job, tmp_path / "killed", url)
    add(log, KILLED)
    to_its_end(job, tmp_path / "again", url)
    check(log, way, str(point), state(job, world), tmp_path)


@pytest.mark.parametrize("way", JOBS)
def test_so_is_that_of_a_driver_that_stood_still_while_it_was_overtaken(
    way: str, world: EpochWorld, log: Path, tmp_path: Path
) -> None:
    """Its tasks and its commit process go on under a generation that is over."""
    job, url = made(way, world)

    def has_written() -> bool:
        return any(
            line["event"] == "PreCommitted" and line["epoch"] > 0
            for line in (read(log) if log.exists() else [])
        )

    with Driver(job, tmp_path / "first", url) as driver:
        driver.wait_until(has_written, "a task of the second epoch has written")
        driver.stop()
        copied = world.files.with_checkpoint_copy("overtaking")
        overtaking = replace(job, checkpoint=str(copied.checkpoint))
        to_its_end(overtaking, tmp_path / "second", url)
        driver.go_on()
        assert driver.end() == 1
        assert "abs_core.errors.FencedError" in driver.log
    add(log, gone(1))
    world.files.add_file(FILES)  # one more epoch, by a run that sweeps
    to_its_end(overtaking, tmp_path / "third", url)
    check(log, way, "stood-still", state(job, world), tmp_path)


def last_of(world: World, epoch: int) -> Callable[[], bool]:
    return (world.checkpoint / "commits" / str(epoch)).exists


@pytest.mark.parametrize("way", JOBS)
def test_so_is_that_of_two_drivers_that_run_at_once(
    way: str, world: EpochWorld, log: Path, tmp_path: Path
) -> None:
    """The second one takes over, neither stands still, and both want the next epoch."""
    job, url = made(way, world)
    job = replace(job, continuous=True)
    with Driver(job, tmp_path / "first", url) as driver:
        driver.wait_until(last_of(world.files, FILES - 1), "all epochs are done")
        copied = world.files.with_checkpoint_copy("second")
        copied.forget_commits(1)  # so that it has something to do, and takes over
        second = replace(job, checkpoint=str(copied.checkpoint))
        with Driver(second, tmp_path / "second", url) as other:
            other.wait_until(last_of(copied, FILES - 1), "it has taken over")
            world.files.add_file(FILES)
            other.wait_until(last_of(copied, FILES), "the next epoch is done")
            assert driver.end() == 1
            assert "abs_core.errors.FencedError" in driver.log
            other.kill()
    add(log, gone(1))
    add(log, KILLED)
    to_its_end(replace(second, continuous=False), tmp_path / "third", url)
    check(log, way, "two-at-once", state(job, world), tmp_path)
