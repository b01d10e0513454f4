"""A register store in this process's memory: for tests and for jobs that may forget."""

from __future__ import annotations

from threading import Lock

from abs_core.contracts import Conflict, Stored, Version
from abs_core.model import JobState


class MemoryRegister:
    """Linearizable among the threads of one process; gone with it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cells: dict[str, tuple[JobState, int]] = {}

    def load(self, job: str) -> Stored | None:
        with self._lock:
            cell = self._cells.get(job)
        return None if cell is None else Stored(cell[0], str(cell[1]))

    def retire(self, job: str) -> bool:
        """Delete a job's cell; whether there was one."""
        with self._lock:
            return self._cells.pop(job, None) is not None

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState
    ) -> Version | Conflict:
        with self._lock:
            cell = self._cells.get(job)
            present = None if cell is None else str(cell[1])
            if present != expected:
                return Conflict()
            version = 1 if cell is None else cell[1] + 1
            self._cells[job] = (state, version)
            return str(version)
