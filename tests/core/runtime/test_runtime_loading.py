"""What a job does without is not loaded for it."""

from __future__ import annotations

import subprocess
import sys

OPTIONAL = (
    *("runtime.windows", "runtime.joins", "runtime.savepoints", "runtime.lease"),
    *("runtime.tables", "runtime.trace"),
    *("state.rocks", "state.external", "state.query", "state.local_store"),
)


def test_a_plain_job_loads_no_part_that_it_does_without() -> None:
    """The linter sees who knows whom, not when: these are loaded by the method that needs them."""
    names = [f"abs_core.{name}" for name in OPTIONAL]
    told = f"import sys, abs_core.runtime\nprint(*[n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
