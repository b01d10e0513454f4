"""Crash points: the places between two durable effects where a process may die.

Tests arm one by the environment variable ``ABS_TEST_CRASH=<point>[#<nth>][@<marker file>]``, or by
``arm`` in a process that has imported this module already; the process then kills itself with SIGKILL
when it passes the point for the nth time (default 1). With a marker file it happens once over all
processes and restarts: whoever creates the file dies. Not armed, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path

VARIABLE = "ABS_TEST_CRASH"


class CrashPoint(StrEnum):
    """Every point; the tests fail when one of them is never hit."""

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
    """Die at this point, written as in the environment variable; never where None.

    Raises:
        ValueError: it names no point.
    """
    global _armed
    _armed = _Armed(setting) if setting else None


arm(os.environ.get(VARIABLE))


def reached(point: CrashPoint) -> None:
    """The process has got to ``point``; it goes on unless a test has armed it."""
    if _armed is not None:
        _armed.passed(point)


def is_armed(point: CrashPoint) -> bool:
    """Whether a test has armed this point.

    For who sends several things at once: a death between them is one only where each is answered
    before the next is sent.
    """
    return _armed is not None and _armed.point is point
