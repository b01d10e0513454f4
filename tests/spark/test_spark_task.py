"""What a task does, by a format and by ``abs_spark.epoch``: both write, tell and fail alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from abs_core.certificate import Origin
from abs_core.contracts import Task, Writer
from abs_core.coordinator import Coordinator
from abs_core.errors import AbsError, FencedError, NotPreparedError, UnavailableError
from abs_core.model import Finding, JobState
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity
from abs_sinks.options import CommonOptions
from abs_spark.datasource import stream as by_format
from abs_spark.foreach import tasks as by_epoch
from abs_spark.foreach.tasks import Obscured
from abs_spark.foreach.views import View
from abs_spark.names import Announced, RunName
from abs_spark.share import task_of
from abs_spark.sink_spec import SinkSpec
from abs_testing.fakes import FakeSink, FakeTarget
from tests.kit.formats import Making

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])
ROWS = pa.RecordBatch.from_pylist([{"id": n, "value": "x"} for n in range(3)], SCHEMA)
JOB = "job"
BROKEN = UnavailableError("The connection broke.")
SWEPT = NotPreparedError("The transaction is not open any more.")


@dataclass(frozen=True)
class Options:
    """Of a fake sink.

    Args:
        place: of its database.
        breaks: what happens when a row is written.
    """

    place: Path
    breaks: AbsError | None = None
    common: CommonOptions = CommonOptions(job=JOB)  # noqa: RUF009 - it is frozen
    patience: Patience = Patience(seconds=5.0)  # noqa: RUF009 - the same


class Sink(FakeSink):
    closed: ClassVar[list[Path]] = []
    checked: ClassVar[list[Path]] = []

    def __init__(self, options: Options, schema: pa.Schema, *, co_commit: bool = True) -> None:
        super().__init__(FakeTarget(options.place), "2pc", "append")
        self._place = options.place
        self._breaks = options.breaks

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        self.checked.append(self._place)
        return super().preflight(job, tasks)

    def close(self) -> None:
        self.closed.append(self._place)
        super().close()

    def writer(self, task: Task) -> Writer:
        if self._breaks is not None:
            raise self._breaks
        return super().writer(task)


FAKE = Making(Sink)


def begun(options: Options, run: str) -> JobState:
    """The job's state once this run has begun its first epoch."""
    sink = Sink(options, SCHEMA)
    identity = RunIdentity(job=JOB, lineage="query", run=run, target=sink.target_id)
    return Coordinator(identity, sink.register(), sink.committer()).begin(0)[0]


Take = Callable[[Options, JobState, Iterator[pa.RecordBatch]], object]


def of_a_format(options: Options, state: JobState, rows: Iterator[pa.RecordBatch]) -> object:
    target, name = SinkSpec(FAKE, options, SCHEMA), RunName(JOB, "query", state.run)
    work = by_format.TaskWork(name, 0, 1, rows, Announced(), Origin(), digests=False)
    return by_format.run_task(target, work)


def of_an_epoch(options: Options, state: JobState, rows: Iterator[pa.RecordBatch]) -> object:
    target = SinkSpec(FAKE, options, SCHEMA)
    told = by_epoch.TaskSecrets((by_epoch.Part(0, target, View(0, SCHEMA), ""),), target)
    task = task_of(state, 0, 0)
    work = by_epoch.EpochTask(Obscured(told), task, own=True, drain=False, digests=False)
    return by_epoch.take_part(work, 1, rows)


both = pytest.mark.parametrize("take", [of_a_format, of_an_epoch])


@both
def test_a_task_tells_what_it_has_pre_committed(
    take: Take, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options(tmp_path / "target.db")
    state = begun(options, "run")
    # Both: a test before may have shown logs in this process, which quiets progress.
    caplog.set_level(logging.INFO, logger="abs_spark")
    caplog.set_level(logging.INFO, logger="abs_spark.progress")
    take(options, state, iter([ROWS, ROWS]))
    [told] = [r.getMessage() for r in caplog.records if r.name == "abs_spark.progress"]
    assert told.startswith(f"job {JOB}: epoch 0 partition 1: 6 rows pre-committed in ")


@both
def test_a_task_without_rows_prepares_and_tells_nothing(
    take: Take, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options(tmp_path / "target.db")
    state = begun(options, "run")
    caplog.set_level(logging.INFO, logger="abs_spark.progress")
    take(options, state, iter([ROWS.slice(0, 0)]))
    assert not [r for r in caplog.records if r.name == "abs_spark.progress"]
    assert not Sink(options, SCHEMA).committer().in_doubt(JOB)


@both
@pytest.mark.parametrize("seen", [BROKEN, SWEPT])
def test_a_task_that_a_newer_run_cut_off_is_fenced_and_names_what_it_saw(
    take: Take, tmp_path: Path, seen: AbsError
) -> None:
    options = Options(tmp_path / "target.db", breaks=seen)
    state = begun(options, "older")

    def rows() -> Iterator[pa.RecordBatch]:
        begun(options, "newer")
        yield ROWS

    with pytest.raises(FencedError) as fenced:
        take(options, state, rows())
    assert fenced.value.__cause__ is seen


@both
def test_a_task_whose_run_still_holds_the_generation_keeps_its_own_error(
    take: Take, tmp_path: Path
) -> None:
    options = Options(tmp_path / "target.db", breaks=BROKEN)
    state = begun(options, "only")
    with pytest.raises(UnavailableError) as raised:
        take(options, state, iter([ROWS]))
    assert raised.value is BROKEN


MANY = 20
"""Queries of one application, or sinks of one epoch: a process of Spark's works for all of them."""


def test_a_task_of_many_sinks_closes_none_of_them(tmp_path: Path) -> None:
    every = [Options(tmp_path / f"{number}.db") for number in range(MANY)]
    state = begun(every[0], "run")
    views = [View(number, SCHEMA) for number in range(MANY)]
    targets = [SinkSpec(FAKE, options, SCHEMA) for options in every]
    parts = tuple(by_epoch.Part(n, targets[n], views[n], f"s{n}") for n in range(MANY))
    sealed = Obscured(by_epoch.TaskSecrets(parts, targets[0]))
    for partition in range(2):
        task = task_of(state, 0, partition)
        work = by_epoch.EpochTask(sealed, task, own=False, drain=False, digests=False)
        by_epoch.take_part(work, partition, iter([ROWS]))
    assert not {options.place for options in every} & set(Sink.closed)


def test_a_process_that_works_for_many_queries_keeps_a_sink_of_each(tmp_path: Path) -> None:
    every = [Options(tmp_path / f"{number}.db") for number in range(MANY)]
    states = [begun(options, "run") for options in every]
    for _ in range(2):
        for options, state in zip(every, states, strict=True):
            of_a_format(options, state, iter([ROWS]))
    assert not {options.place for options in every} & set(Sink.closed)


def test_a_start_has_one_preflight_by_the_planner_or_else_by_a_task(tmp_path: Path) -> None:
    options = Options(tmp_path / "target.db")
    target = SinkSpec(FAKE, options, SCHEMA)

    def write(run: str, epoch: int, announced: Announced) -> int:
        before = Sink.checked.count(options.place)
        name, none = RunName(JOB, "query", run), iter([ROWS.slice(0, 0)])
        work = by_format.TaskWork(name, epoch, 0, none, announced, Origin(), digests=False)
        by_format.run_task(target, work)
        return Sink.checked.count(options.place) - before

    assert write("by the planner", 0, Announced(checked=True)) == 0
    assert write("by the planner", 0, Announced()) == 0  # nor at a later epoch
    # A planner that has checked the job for another run of this program does not check again.
    assert write("by a task", 0, Announced()) == 1
    assert write("by a task", 0, Announced()) == 0
