"""How long each test file took when it last ran in this checkout: the longest are begun first."""

from __future__ import annotations

from collections import defaultdict
from typing import cast

import pytest

KEY = "abs/seconds"


class Seconds:
    """Adds up what a run's files take, and keeps it in pytest's cache."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @staticmethod
    def known(config: pytest.Config) -> dict[str, float]:
        """By file; nothing at the first run, or where pytest keeps no cache."""
        cache = getattr(config, "cache", None)
        return {} if cache is None else cast(dict[str, float], cache.get(KEY, {}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of a worker, or of this process."""
        self._seconds[report.nodeid.split("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """A file of which only some tests ran keeps the longer time."""
        known = self.known(self._config)
        for file, seconds in self._seconds.items():
            known[file] = round(max(seconds, known.get(file, 0.0)), 1)
        if (cache := getattr(self._config, "cache", None)) is not None:
            cache.set(KEY, known)
