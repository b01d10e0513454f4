"""The leader is killed; the standby goes on, soon, and each row is committed once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from threading import Event

import pytest

from abs_core.contracts import Conflict, Stored, Version
from abs_core.errors import FencedError, UnavailableError
from abs_core.model import JobState
from abs_core.registers import MemoryRegister
from abs_embedded.lease import Lease, lead
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_testing.case import within
from abs_testing.fakes import FakeTarget
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import expected, graph

SCRIPT = Path(__file__).parent / "jobs" / "leading.py"
LEASE = 1.5


def started(folder: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder), str(LEASE), name])


def until(path: Path, seconds: float = 300) -> float:
    """When the process said that it leads."""
    there = within(seconds, lambda: path.exists() and bool(path.read_text()))
    assert there, f"{path.name} did not come"
    return float(path.read_text())


def committed(target: FakeTarget) -> int:
    with target.transaction() as db:
        return int(db.execute("SELECT count(*) FROM data").fetchone()[0])


@pytest.mark.long
def test_a_standby_takes_over_when_the_leader_is_killed(tmp_path: Path) -> None:
    target = FakeTarget(tmp_path / "target.db")
    leader = started(tmp_path, "a")
    standby = None
    try:
        until(tmp_path / "a.leads")
        standby = started(tmp_path, "b")
        assert within(300, lambda: bool(committed(target)))
        assert not (tmp_path / "b.leads").exists(), "a standby waits"
        # Long enough for the standby's interpreter to be watching before the leader goes.
        assert within(300, (tmp_path / "lease").exists)
        leader.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        leader.wait()
        assert until(tmp_path / "b.leads") > killed
        assert standby.wait(timeout=300) == 0
    finally:
        for process in (leader, standby):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
    with target.transaction() as db:
        found = db.execute("SELECT id, value FROM data").fetchall()
    target.close()
    ids, values = expected(24_000)
    assert sorted(id_ for id_, _ in found) == ids
    assert sorted(value for _, value in found) == values


def test_one_process_leads_at_a_time_and_a_late_one_is_fenced() -> None:
    store = MemoryRegister()
    first, second = Lease(store, "job", 0.05, "a"), Lease(store, "job", 0.05, "b")
    assert first.acquire(Event())
    assert second.acquire(Event())  # the first does not renew
    with pytest.raises(FencedError):
        first.renew()
    second.renew()


@pytest.mark.parametrize("done", [True, False])
def test_a_released_lease_is_taken_at_once_unless_the_job_is_done(*, done: bool) -> None:
    store = MemoryRegister()
    leader, standby = Lease(store, "job", 60, "a"), Lease(store, "job", 60, "b")
    assert leader.acquire(Event())
    leader.release(done=done)
    assert standby.acquire(Event()) is not done


class _Forgetful(MemoryRegister):
    """Every first answer is lost: of a look, and of a change that has taken effect."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = {"load", "compare_and_set"}

    def load(self, job: str) -> Stored | None:
        self._lose("load")
        return super().load(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        swapped = super().compare_and_set(job, expected, state, deadline)
        self._lose("compare_and_set")
        return swapped

    def _lose(self, call: str) -> None:
        if call in self.lost:
            self.lost.discard(call)
            raise UnavailableError("no answer")


def test_a_standby_outlives_answers_that_are_lost() -> None:
    store = _Forgetful()
    standby = Lease(store, "job", 0.05, "a")
    assert standby.acquire(Event())
    assert not store.lost
    standby.renew()


class _Doubled(MemoryRegister):
    """Every change arrives twice; the second answer is given."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Event()

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        super().compare_and_set(job, expected, state, deadline)
        self.asked.set()  # whoever waits for the lease does so no longer
        return super().compare_and_set(job, expected, state, deadline)


def test_a_request_that_arrives_twice_costs_no_lease() -> None:
    store = _Doubled()
    leader = Lease(store, "job", 60, "a")
    assert leader.acquire(store.asked)
    leader.renew()
    leader.release(done=False)
    standby = Lease(store, "job", 60, "b")
    store.asked.clear()
    assert standby.acquire(store.asked)
    with pytest.raises(FencedError):
        leader.renew()


class _TakenBetween(MemoryRegister):
    """A rival of the same name takes the lease between look and change."""

    def __init__(self) -> None:
        super().__init__()
        self.rival: Lease | None = None
        self.taken = Event()

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        if self.rival is not None:
            rival, self.rival = self.rival, None
            assert rival.acquire(Event())
            self.taken.set()
        return super().compare_and_set(job, expected, state, deadline)


def test_two_processes_of_one_name_never_both_lead() -> None:
    store = _TakenBetween()
    before = Lease(store, "job", 60, "a")
    assert before.acquire(Event())
    before.release(done=False)
    store.rival = Lease(store, "job", 60, "same")
    assert not Lease(store, "job", 60, "same").acquire(store.taken)
    assert store.taken.is_set()


class _Hiccup(MemoryRegister):
    """The first renewal ends in an error that is none of the project's."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.renewed = Event()

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        self.changes += 1
        if self.changes == 2:
            raise RuntimeError("planted")
        if self.changes == 4:
            self.renewed.set()
        return super().compare_and_set(job, expected, state, deadline)


def test_a_leader_renews_on_after_an_error_of_whatever_kind() -> None:
    store = _Hiccup()
    renewed: list[bool] = []
    leader = Lease(store, "job", 0.4, "a")
    assert lead(leader, lambda stop: renewed.append(store.renewed.wait(60)), Event(), lambda: None)
    assert renewed == [True]


class _OldLeader(LocalSnapshotStore):
    """A leader that was taken over writes its record just before its successor's of that number."""

    late = 1

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        if checkpoint == self.late:
            super().complete(checkpoint, record.replace(b'"handles"', b' "handles"'), [])
        super().complete(checkpoint, record, blobs)


def test_a_late_record_of_the_old_leader_costs_its_successor_one_checkpoint(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.store = _OldLeader(tmp_path / "snapshots")
    said: list[tuple[str, int]] = []
    job = bench.job(
        graph(bench.sink, rows=6_000), observe=lambda what, task, n: said.append((what, n))
    )
    job.run()
    assert ("aborted", 1) in said
    assert ("committed", 1) not in said
    assert any(what == "committed" and n > 1 for what, n in said)
    bench.check(6_000)
