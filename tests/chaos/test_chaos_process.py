"""A kill takes all of the job: also children that went into groups of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from abs_chaos.process import JobProcess
from abs_testing.case import within

# A driver with a child in a process group of its own, which has a child again: as PySpark's are.
_DRIVER = """
import os, subprocess, sys, time
inner = "import time; time.sleep(600)"
outer = (
    "import os, subprocess, sys, time; os.setpgid(0, 0); "
    f"print(subprocess.Popen([sys.executable, '-c', {inner!r}]).pid, os.getpid(), flush=True); "
    "time.sleep(600)"
)
subprocess.Popen([sys.executable, "-c", outer])
time.sleep(600)
"""


def test_a_kill_leaves_none_of_the_jobs_processes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = JobProcess([sys.executable, "-c", _DRIVER], dict(os.environ), tmp_path, log)
    try:
        assert within(30, lambda: len(log.read_text().split()) == 2)
        pids = [int(pid) for pid in log.read_text().split()]
        assert job.processes() == 3
        assert not job.has_ended
    finally:
        killed = job.kill()
    assert killed == 3
    assert not any(_lives(pid) for pid in pids)
    assert job.kill() == 0


def test_a_job_that_dies_before_anybody_has_looked_counts_as_one_process(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    for _ in range(20):  # most of them are gone when the first look at the processes comes
        assert JobProcess(sleeper, dict(os.environ), tmp_path, tmp_path / "log").kill() == 1


def test_the_exit_code_of_a_job_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    job = JobProcess(
        [sys.executable, "-c", "raise SystemExit(7)"], dict(os.environ), tmp_path, tmp_path / "log"
    )
    try:
        assert within(30, lambda: job.has_ended)
        assert job.end() == 7
    finally:
        job.kill()


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
