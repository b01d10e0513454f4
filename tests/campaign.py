"""``--minutes N``: begin tests for so long, in an order of the seed, and say what share of them ran."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests import sample


class Minutes:
    """Skips what would begin after the time is over.

    Args:
        minutes: how long tests may begin; the one that runs then is not interrupted.
    """

    def __init__(self, minutes: float) -> None:
        self._end = time.monotonic() + 60 * minutes
        self._all = 0
        self._ran = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Files in an order of the seed: a campaign that is always cut tries all of them in time."""
        paths = sorted({item.path for item in items})
        random.Random(sample.seed()).shuffle(paths)
        place: dict[Path, int] = {path: number for number, path in enumerate(paths)}
        items.sort(key=lambda item: place[item.path])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """How many there are, without those that the options leave out."""
        self._all = len(session.items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Count the test, or skip it."""
        if time.monotonic() > self._end:
            pytest.skip("the minutes are over")
        self._ran += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The share, and how to go on."""
        share = self._ran / self._all if self._all else 1.0
        terminalreporter.write_line(
            f"{self._ran} of {self._all} tests began ({share:.0%}); "
            f"ABS_TEST_SEED={sample.seed()} repeats their order and what they draw"
        )
