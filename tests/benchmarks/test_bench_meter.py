"""CPU seconds of the benchmarks: processes below this one count, those that have ended too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.meter import metered

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_cpu_of_a_child_that_has_ended_is_counted() -> None:
    with metered() as taken:
        subprocess.run([sys.executable, "-c", BURN], check=True)
    assert taken.cpu_s >= 0.25
    assert taken.wall_s >= taken.cpu_s * 0.5


def test_cpu_of_a_child_that_still_runs_is_counted() -> None:
    script = f"{BURN}\nprint('burnt', flush=True)\nimport sys; sys.stdin.read()"
    with metered() as taken:
        child = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"burnt\n"
        assert child.poll() is None
    child.communicate()
    assert taken.cpu_s >= 0.25


# Starts a child that burns, ignores SIGCHLD as Spark's Python daemon does, and lets the child go.
DAEMON = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = subprocess.Popen(
    [sys.executable, "-c", {BURN!r} + "\\nprint('burnt', flush=True)\\nimport sys; sys.stdin.read()"],
    stdin=subprocess.PIPE,
)
sys.stdin.readline()
child.stdin.close()
while child.poll() is None:
    pass
print("gone", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads proc(5)")
def test_what_an_unwaited_child_used_before_is_not_taken_off() -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == b"burnt\n"
    with metered() as taken:
        daemon.stdin.write(b"\n")
        daemon.stdin.flush()
        assert daemon.stdout.readline() == b"gone\n"
    daemon.communicate()
    assert taken.cpu_s >= 0
