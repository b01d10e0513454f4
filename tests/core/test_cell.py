"""A job's cell is changed by one at a time: who is not first tries again for a while."""

from __future__ import annotations

from abs_core import protocol
from abs_core.contracts import Conflict, RegisterStore, Stored, Version
from abs_core.coordinator.cell import RegisterCell
from abs_core.errors import ContentionError
from abs_core.model import JobState
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity, Verdict
from abs_core.registers import MemoryRegister
from abs_testing.case import raises

JOB = "job"


class _Contended(RegisterStore):
    """A register in which somebody else is first, the next ``times`` times."""

    def __init__(self, times: int) -> None:
        self._store = MemoryRegister()
        self._times = times
        self.tries = 0

    def load(self, job: str) -> Stored | None:
        return self._store.load(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        self.tries += 1
        if self.tries <= self._times:
            return Conflict()
        return self._store.compare_and_set(job, expected, state, deadline)


def _start(state: JobState | None) -> Verdict:
    return protocol.start(state, RunIdentity(JOB, "lineage", "run", "target"), "0" * 16)


def test_who_is_never_first_gives_up_in_time_and_says_so() -> None:
    store = _Contended(times=1_000_000)
    cell = RegisterCell(store, JOB, Patience(seconds=1.0, job=JOB, system="the register"))
    error = raises(ContentionError, lambda: cell.change(_start))
    assert f"changed the job's register first, {store.tries} time(s)" in error.what
    assert "Waited for the register" in error.what
    assert error.job == JOB
    assert "under this job name" in error.remedy
    assert store.tries < 200, "it was tried again without a pause"


def test_a_change_goes_through_once_the_others_are_done() -> None:
    store = _Contended(times=3)
    state = RegisterCell(store, JOB, Patience(seconds=60.0, first_pause=0.001)).change(_start)
    assert state.generation == 1
    assert store.tries == 4
    stored = store.load(JOB)
    assert stored is not None
    assert stored.state == state
