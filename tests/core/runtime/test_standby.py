"""The leader is killed; the standby goes on, soon, and each row is committed once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from abs_core.errors import FencedError
from abs_core.registers.memory import MemoryRegister
from abs_core.runtime.lease import Lease
from abs_core.testing.fakes import FakeTarget
from tests.core.runtime.jobs.counting import expected

SCRIPT = Path(__file__).parent / "jobs" / "leading.py"
LEASE = 1.5


def started(folder: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder), str(LEASE), name])


def until(path: Path, seconds: float = 60) -> float:
    """When the process said that it leads."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.01)
    return float(path.read_text())


def committed(target: FakeTarget) -> int:
    with target.transaction() as db:
        return int(db.execute("SELECT count(*) FROM data").fetchone()[0])


def test_a_standby_takes_over_within_twice_the_lease(tmp_path: Path) -> None:
    target = FakeTarget(tmp_path / "target.db")
    leader = started(tmp_path, "a")
    standby = None
    try:
        until(tmp_path / "a.leads")
        standby = started(tmp_path, "b")
        deadline = time.monotonic() + 60
        while not committed(target):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not (tmp_path / "b.leads").exists(), "a standby waits"
        # Long enough for the standby's interpreter to be watching before the leader goes.
        while not (tmp_path / "lease").exists():
            assert time.monotonic() < deadline
        leader.send_signal(signal.SIGKILL)
        killed = time.time()
        leader.wait()
        assert until(tmp_path / "b.leads") - killed < 2 * LEASE
        assert standby.wait(timeout=120) == 0
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


def test_a_standby_ends_when_the_job_is_done() -> None:
    store = MemoryRegister()
    leader, standby = Lease(store, "job", 60, "a"), Lease(store, "job", 60, "b")
    assert leader.acquire(Event())
    leader.release(done=True)
    assert not standby.acquire(Event())


def test_a_released_lease_is_taken_at_once() -> None:
    store = MemoryRegister()
    leader, standby = Lease(store, "job", 60, "a"), Lease(store, "job", 60, "b")
    assert leader.acquire(Event())
    leader.release(done=False)
    assert standby.acquire(Event())
