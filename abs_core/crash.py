"""Crash points: named places between two durable effects, for crash tests.

A test arms one by the environment variable ``ABS_TEST_CRASH=<point>[#<nth>][@<marker file>]``, or by
``arm`` once this module is imported; the process then kills itself with SIGKILL when it passes the
point for the nth time (default 1). With a marker file only one process dies, over all restarts: the
one that creates the file. A point that is not armed costs one comparison.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path

VARIABLE = "ABS_TEST_CRASH"


class CrashPoint(StrEnum):
    """All crash points; the tests fail if one of them is never reached."""

    BEFORE_START = "before_start"
    AFTER_START = "after_start"
    AFTER_PLAN = "after_plan"
    AFTER_FIRST_BATCH = "after_first_batch"
    BEFORE_PRE_COMMIT = "before_pre_commit"
    AFTER_PRE_COMMIT = "after_pre_commit"
    AFTER_SWEEP = "after_sweep"
    AFTER_INSPECT = "after_inspect"
    AFTER_DECIDE = "after_decide"
    BETWEEN_COMMITS = "between_commits"
    AFTER_COMMIT = "after_commit"
    AFTER_FINISH = "after_finish"
    AFTER_FORGET = "after_forget"
    INSIDE_CO_COMMIT = "inside_co_commit"
    AFTER_CO_COMMIT = "after_co_commit"
    AFTER_ABANDON = "after_abandon"
    BETWEEN_ABORTS = "between_aborts"


class _Armed:
    def __init__(self, setting: str) -> None:
        rest, _, marker = setting.partition("@")
        point, _, nth = rest.partition("#")
        self.point = CrashPoint(point)
        self.left = int(nth or 1)
        self.marker = Path(marker) if marker else None

    def passed(self, point: CrashPoint) -> None:
        if point is not self.point:
            return
        self.left -= 1
        if self.left == 0 and self._first():
            os.kill(os.getpid(), signal.SIGKILL)

    def _first(self) -> bool:
        if self.marker is None:
            return True
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


_armed: _Armed | None = None


def arm(setting: str | None) -> None:
    """Arm a point, written as in the environment variable; None disarms.

    Raises:
        ValueError: it names no point.
    """
    global _armed
    _armed = _Armed(setting) if setting else None


arm(os.environ.get(VARIABLE))


def reached(point: CrashPoint) -> None:
    """Mark that the process has reached ``point``; kills it if a test has armed the point."""
    if _armed is not None:
        _armed.passed(point)


def is_armed(point: CrashPoint) -> bool:
    """Whether a test has armed this point.

    A caller that sends requests in parallel then sends them one by one, so that there is a moment
    between two of them.
    """
    return _armed is not None and _armed.point is point
