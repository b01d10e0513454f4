"""An armed point kills its process; one that is not armed costs and does nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from abs_core.crash import VARIABLE, CrashPoint, arm, reached

PASSING = """
from abs_core.crash import CrashPoint, reached
for number in range(3):
    reached(CrashPoint.AFTER_PLAN)
    reached(CrashPoint.AFTER_DECIDE)
    print(number, flush=True)
"""


def passing(setting: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PASSING],
        env=os.environ | {VARIABLE: setting},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("setting", "passages"),
    [("after_decide", 0), ("after_decide#1", 0), ("after_decide#3", 2), ("after_plan#2", 1)],
)
def test_a_process_dies_at_the_passage_that_is_armed(setting: str, passages: int) -> None:
    died = passing(setting)
    assert died.returncode == -signal.SIGKILL
    assert len(died.stdout.split()) == passages


@pytest.mark.parametrize("setting", ["", "after_decide#4", "before_start"])
def test_a_process_that_does_not_pass_the_point_lives(setting: str) -> None:
    assert passing(setting).returncode == 0


def test_with_a_marker_file_only_the_first_process_dies(tmp_path: Path) -> None:
    setting = f"after_plan@{tmp_path / 'died'}"
    assert [passing(setting).returncode for _ in range(2)] == [-signal.SIGKILL, 0]


def test_a_point_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="no_such_point"):
        arm("no_such_point")
    reached(CrashPoint.AFTER_PLAN)
