"""CPU seconds of the benchmarks: processes below this one count, those that have ended too."""

from __future__ import annotations

import subprocess
import sys

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
