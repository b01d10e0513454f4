"""What a process has loaded costs later garbage collections nothing."""

from __future__ import annotations

import subprocess
import sys


def test_what_is_there_after_the_first_work_is_not_collected_again() -> None:
    """In an interpreter of its own: it is for the whole process."""
    script = (
        "import gc\n"
        "from abs_spark.settled import settle\n"
        "settle()\n"
        "kept = gc.get_freeze_count()\n"
        "assert kept > 1000, kept\n"
        "later = [[] for _ in range(100)]\n"
        "settle()\n"
        "assert gc.get_freeze_count() <= kept\n"
        "cycle = []; cycle.append(cycle); del cycle\n"
        "assert gc.collect() > 0\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
