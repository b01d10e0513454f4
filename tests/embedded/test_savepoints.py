"""Who asks for a savepoint is told what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from abs_core.barriers import checkpoint_rules as rules
from abs_core.barriers.checkpoint_rules import CoordinatorState, Declined
from abs_core.errors import ConfigError, ProtocolError, UnavailableError
from abs_embedded import STRATEGIES, Graph, Job, Restore, Settings
from abs_embedded.checkpoint_coordinator import CheckpointCoordinator
from abs_embedded.savepoints import Savepoints
from abs_embedded.snapshot import Record
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import graph, tables
from tests.embedded.test_checkpoint_rules import TASKS, A, Decided, running


def asking(bench: Bench, requests: list[Future[int]], rows: int = 6_000) -> Job:
    """A job that asks for one savepoint when its first checkpoint is committed."""

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and not requests:
            requests.append(job.ask_savepoint())

    built = graph(bench.sink, rows=rows)
    job = bench.job(built, savepoints=bench.savepoints, observe=observe)
    return job


def test_a_savepoint_that_was_taken_is_answered_with_its_number(bench: Bench) -> None:
    requests: list[Future[int]] = []
    asking(bench, requests).run()
    assert [requests[0].result(0)] == bench.savepoints.completed()
    bench.check(6_000)


class Full(LocalSnapshotStore):
    """Has no room."""

    def put(self, key: str, content: bytes) -> BlobRef:
        raise UnavailableError("planted: no room")


def test_a_savepoint_whose_checkpoint_fails_is_answered_and_the_job_goes_on(
    bench: Bench, tmp_path: Path
) -> None:
    bench.savepoints = Full(tmp_path / "full")
    requests: list[Future[int]] = []
    asking(bench, requests).run()
    error = requests[0].exception(0)
    assert isinstance(error, UnavailableError)
    assert f"Savepoint {error.epoch} was not taken" in str(error)
    assert error.job == "counting"
    assert "planted: no room" in str(error)
    assert "ask again" in error.remedy
    assert bench.savepoints.completed() == []
    bench.check(6_000)


class Refusing(LocalSnapshotStore):
    """Refuses the completion records of some checkpoints."""

    refused: Callable[[int], bool]
    error: Exception = UnavailableError("planted: no record")

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        if self.refused(checkpoint):
            raise self.error
        super().complete(checkpoint, record, blobs)


def test_a_savepoint_whose_checkpoint_is_not_decided_is_not_complete_in_its_store(
    bench: Bench, tmp_path: Path
) -> None:
    store = bench.store = Refusing(tmp_path / "refusing")
    store.refused = lambda checkpoint: any(request.running() for request in requests)
    requests: list[Future[int]] = []
    asking(bench, requests).run()
    assert "planted: no record" in str(requests[0].exception(0))
    assert bench.savepoints.completed() == []
    bench.check(6_000)


@pytest.mark.parametrize("raised", [UnavailableError("planted"), OSError("planted")])
def test_a_savepoint_that_cannot_be_completed_is_answered_and_its_checkpoint_stands(
    bench: Bench, tmp_path: Path, raised: Exception
) -> None:
    refusing = bench.savepoints = Refusing(tmp_path / "refusing")
    refusing.error = raised
    refusing.refused = lambda checkpoint: True
    requests: list[Future[int]] = []
    asking(bench, requests).run()
    error = requests[0].exception(0)
    assert isinstance(error, UnavailableError)
    assert "its record was not written" in str(error)
    assert bench.savepoints.completed() == []
    bench.check(6_000)


@pytest.mark.parametrize("fails", [False, True])
def test_a_savepoint_that_the_end_of_the_job_overtakes_is_answered(
    bench: Bench, *, fails: bool
) -> None:
    stop = Event()
    requests: list[Future[int]] = []

    def ask(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not requests:
            requests.append(job.ask_savepoint())
        if fails:
            raise RuntimeError("planted")
        stop.set()
        return batch

    built = Graph("asks")
    built.source("rows", TableSource(tables(100))).map("ask", ask).sink("out", bench.sink)
    never = Settings(interval=3600, min_pause=3600)
    job = bench.job(built, savepoints=bench.savepoints, settings=never, restarts=0)
    if fails:
        with pytest.raises(UnavailableError, match="RuntimeError"):
            job.run(stop=stop)
    else:
        job.run(stop=stop)
    told = str(requests[0].exception(0))
    assert ("the job failed" if fails else "the job has ended") in told
    assert "start the job again" in told


def test_a_savepoint_of_a_job_that_does_not_run_is_refused(bench: Bench) -> None:
    job = bench.job(graph(bench.sink, rows=300), savepoints=bench.savepoints)
    for _ in range(2):  # before it runs, and after
        with pytest.raises(ConfigError, match="running job"):
            job.ask_savepoint()
        job.run()


def coordinated(folder: Path) -> tuple[CheckpointCoordinator, Savepoints]:
    """A coordinator of two tasks, which takes a checkpoint when it is asked only."""
    keeper = Decided()
    keeper.written = Record("job", "register", 5, {}, {}, (), 128)
    savepoints = Savepoints("job", LocalSnapshotStore(folder), keeper)  # type: ignore[arg-type]
    coordinator = CheckpointCoordinator(
        *(STRATEGIES["none"], Settings(timeout=10), running(), lambda: False, keeper),
        CoordinatorState(5, 0.0, 0.0),
        companion=savepoints,
    )
    return coordinator, savepoints


def steps(coordinator: CheckpointCoordinator, now: float) -> None:
    while coordinator.step(now):
        pass


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (lambda coordinator: steps(coordinator, 11.0), "timed out"),
        (lambda coordinator: coordinator.restart(frozenset({A}), 1.0), "restored"),
        (lambda coordinator: coordinator.inbox.append(Declined(A, 0, 5, "too large")), "too large"),
    ],
)
def test_a_savepoint_under_way_is_answered_whatever_ends_its_checkpoint(
    what: Callable[[CheckpointCoordinator], None], why: str, tmp_path: Path
) -> None:
    coordinator, savepoints = coordinated(tmp_path)
    request = savepoints.ask()
    steps(coordinator, 0.0)
    assert request.running()
    what(coordinator)
    steps(coordinator, 1.0)
    with pytest.raises(UnavailableError, match=why):
        request.result(0)


def test_all_that_ask_before_a_checkpoint_begins_get_the_same_one_and_later_ones_the_next(
    tmp_path: Path,
) -> None:
    coordinator, savepoints = coordinated(tmp_path)
    both = [savepoints.ask() for _ in range(2)]
    steps(coordinator, 0.0)
    later = savepoints.ask()
    for checkpoint in (5, 6):
        for task in TASKS:
            coordinator.inbox.append(rules.Acknowledged(task, 0, checkpoint, None))
        steps(coordinator, 1.0)
    assert [request.result(0) for request in (*both, later)] == [5, 5, 6]


def test_a_request_that_was_taken_back_begins_nothing(tmp_path: Path) -> None:
    coordinator, savepoints = coordinated(tmp_path)
    assert savepoints.ask().cancel()
    steps(coordinator, 0.0)
    assert coordinator.state.pending == ()


def test_a_savepoint_of_another_job_is_not_what_the_sinks_are_committed_to(tmp_path: Path) -> None:
    """Though it has the number of this job's last checkpoint."""
    one, other = Bench(tmp_path / "one"), Bench(tmp_path / "other")
    requests: list[Future[int]] = []
    asking(one, requests).run()
    number, stop = requests[0].result(0), Event()

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and checkpoint == number:
            stop.set()

    other.job(graph(other.sink, rows=60_000), observe=observe).run(stop=stop)
    before = other.rows()
    restore = Restore(checkpoint=number, source=one.savepoints)
    with pytest.raises(ProtocolError, match=f"checkpoint {number} of another register"):
        other.job(graph(other.sink, rows=6_000)).run(restore)
    assert other.rows() == before
