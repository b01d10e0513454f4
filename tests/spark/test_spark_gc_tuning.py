"""What a process has loaded costs later garbage collections nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest


def test_what_is_there_after_the_first_work_is_not_collected_again() -> None:
    """In an interpreter of its own: it is for the whole process."""
    script = (
        "import gc\n"
        "from abs_spark.process.gc_tuning import tune_gc\n"
        "tune_gc()\n"
        "kept = gc.get_freeze_count()\n"
        "assert kept > 1000, kept\n"
        "later = [[] for _ in range(100)]\n"
        "tune_gc()\n"
        "assert gc.get_freeze_count() <= kept\n"
        "cycle = []; cycle.append(cycle); del cycle\n"
        "assert gc.collect() > 0\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_switch_leaves_the_process_as_it_is() -> None:
    script = (
        "import gc\n"
        "from abs_spark.process.gc_tuning import tune_gc\n"
        "tune_gc()\n"
        "assert gc.get_freeze_count() == 0\n"
    )
    off = {**os.environ, "ABS_TUNE_GC": "0"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=off)


FAULTS = """
import resource
from abs_spark.process.gc_tuning import tune_gc
tune_gc()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytes(1000) for _ in range(60_000)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_that_a_task_has_freed_is_there_for_the_next_one() -> None:
    """60 MB in blocks, freed, and taken again; unless the environment says how glibc is to do it."""

    def page_faults(**environment: str) -> int:
        run = subprocess.run(
            [sys.executable, "-c", FAULTS],
            check=True,
            timeout=60,
            capture_output=True,
            env={**os.environ, **environment},
        )
        return int(run.stdout)

    tuned = page_faults()
    assert tuned < page_faults(MALLOC_TRIM_THRESHOLD_="131072") / 4
    assert tuned < page_faults(ABS_TUNE_GC="0") / 4
