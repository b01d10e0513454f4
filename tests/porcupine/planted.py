"""Registers with a bug each, which histories must show."""

from __future__ import annotations

import random
import time

from abs_core.contracts import Conflict, RegisterStore, Stored, Version
from abs_core.errors import UnavailableError
from abs_core.model import JobState
from abs_core.registers import FileRegister


class StaleRead(FileRegister):
    """A process is told now and then what it was told the last time."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._last: dict[str, Stored | None] = {}

    def load(self, job: str) -> Stored | None:
        if job not in self._last or random.random() > 0.1:
            self._last[job] = super().load(job)
        return self._last[job]


class LostUpdate(FileRegister):
    """It compares first, and writes whatever has happened in between."""

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        if _version(self, job) != expected:
            return Conflict()
        time.sleep(0.001)
        return super().compare_and_set(job, _version(self, job), state)


class LateWrite(FileRegister):
    """A request that had no answer arrives after newer ones, and is taken."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._late: list[JobState] = []

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        if self._late and random.random() < 0.2:
            late = self._late.pop()
            super().compare_and_set(late.job, _version(self, late.job), late)
        if random.random() < 0.1 and _version(self, job) == expected:
            self._late.append(state)
            raise UnavailableError("the answer is lost")
        return super().compare_and_set(job, expected, state)


def _version(store: RegisterStore, job: str) -> Version | None:
    stored = store.load(job)
    return None if stored is None else stored.version


PLANTED = {"stale-read": StaleRead, "lost-update": LostUpdate, "late-write": LateWrite}
