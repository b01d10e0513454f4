"""A single large row costs a task so many times its size, as docs/reference/s3.md says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from abs_sinks.s3 import formats
from tests.sinks.s3 import large_row

MIB = 64
TIMES = {"parquet": 5.0, "json": 3.0, "csv": 2.0, "arrow": 2.0}
"""At the most, beside the row itself."""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of a process cannot be reset here"
)


def taken(fileformat: str, planted: str = "") -> float:
    """The memory that the row takes to encode, in times of its size."""
    code = f"{planted}; from {large_row.__name__} import main; main({fileformat!r}, {MIB})"
    done = subprocess.run(
        [sys.executable, "-c", code.removeprefix("; ")],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout) / MIB


@pytest.mark.long
@pytest.mark.parametrize("fileformat", TIMES)
def test_a_large_row_costs_as_much_as_the_page_says(fileformat: str) -> None:
    assert taken(fileformat) < TIMES[fileformat]


def test_statistics_of_large_values_would_cost_more() -> None:
    planted = f"import {formats.__name__} as f; f._with_statistics = lambda _: True"
    assert taken("parquet", planted) > TIMES["parquet"]
