"""CPU seconds of the benchmarks: processes below this one count, those that have ended too.

Each case runs in an interpreter of its own: the process of the tests has other children (servers, a
JVM), and what those use is rightly counted too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BURN = "import time\nwhile time.process_time() < 0.3: pass"
BURN_AND_STAY = f"{BURN}\nprint('burnt', flush=True)\nimport sys; sys.stdin.read()"

ENDED = f"""
with metered() as taken:
    subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
"""

STILL_RUNS = f"""
with metered() as taken:
    child = subprocess.Popen(
        [sys.executable, "-c", {BURN_AND_STAY!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"burnt\\n"
    assert child.poll() is None
child.communicate()
"""

# Starts a child that burns, ignores SIGCHLD as Spark's Python daemon does, and lets the child go.
DAEMON = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {BURN_AND_STAY!r}], stdin=subprocess.PIPE)
sys.stdin.readline()
child.stdin.close()
while child.poll() is None:
    pass
print("gone", flush=True)
sys.stdin.read()
"""

UNWAITED = f"""
daemon = subprocess.Popen(
    [sys.executable, "-c", {DAEMON!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
assert daemon.stdout.readline() == b"burnt\\n"
with metered() as taken:
    daemon.stdin.write(b"\\n")
    daemon.stdin.flush()
    assert daemon.stdout.readline() == b"gone\\n"
daemon.communicate()
"""


def cpu_seconds(case: str) -> float:
    """CPU seconds that ``metered`` gives for a case, in an interpreter that has no other children."""
    script = (
        f"import subprocess, sys\nfrom benchmarks.meter import metered\n{case}\nprint(taken.cpu_s)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE)
    return float(done.stdout)


def test_cpu_of_a_child_that_has_ended_is_counted() -> None:
    assert 0.25 <= cpu_seconds(ENDED) < 3


def test_cpu_of_a_child_that_still_runs_is_counted() -> None:
    assert 0.25 <= cpu_seconds(STILL_RUNS) < 3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads proc(5)")
def test_what_an_unwaited_child_used_before_is_not_taken_off() -> None:
    assert cpu_seconds(UNWAITED) >= 0


def test_processes_of_a_benchmark_keep_compiled_modules_whatever_the_environment_says() -> None:
    script = "import sys; print(sys.dont_write_bytecode)"
    both = (
        f"import benchmarks, subprocess, sys; {script}; sys.stdout.flush()\n"
        f"subprocess.run([sys.executable, '-c', {script!r}], check=True)"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", both], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert done.stdout.split() == ["False", "False"]
