"""A register store in this process's memory, for tests and for jobs without durability."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from abs_core.contracts import Conflict, Inventory, Stored, Version, in_time
from abs_core.inventory import check_finished, others_among
from abs_core.model import JobState


class MemoryRegister(Inventory):
    """Linearizable among the threads of one process; gone with it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cells: dict[str, Stored] = {}

    def load(self, job: str) -> Stored | None:
        with self._lock:
            return self._cells.get(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        in_time(job, deadline)
        with self._lock:
            stored = self._cells.get(job)
            if (None if stored is None else stored.version) != expected:
                return Conflict()
            number = 1 if stored is None else int(stored.version.partition(".")[0]) + 1
            # With the register's id: a deleted and recreated cell has other versions.
            version = f"{number}.{state.register}"
            self._cells[job] = Stored(state, version)
            return version

    def jobs(self) -> Sequence[Stored]:
        with self._lock:
            return [stored for _, stored in sorted(self._cells.items())]

    def others_on(self, target: str, job: str) -> Sequence[str]:
        return others_among((stored.state for stored in self.jobs()), target, job)

    def retire(self, job: str) -> bool:
        with self._lock:
            stored = self._cells.get(job)
            if stored is not None:
                check_finished(stored.state)
            return self._cells.pop(job, None) is not None

    def place(self, job: str) -> str:
        return f"job {job} in the memory of this process"
