"""One job's register cell, with patience: load it, or change it by a rule, whatever gets lost."""

from __future__ import annotations

from collections.abc import Callable

from abs_core.births import rules as births
from abs_core.births.certificate import place_of, shown_place_of
from abs_core.contracts import Conflict, Punctual, RegisterStore, Stored, Version
from abs_core.coordinator.permission import Permission
from abs_core.errors import ContentionError
from abs_core.model import JobState
from abs_core.patience import Patience
from abs_core.protocol import Changed, Refused, Unchanged, Verdict

Rule = Callable[[JobState | None], Verdict]
Swap = Callable[[Version | None, JobState], Version | Conflict]


class Cell:
    """A job's cell in a register store.

    Args:
        store: holds it.
        job: its key.
    """

    def __init__(self, store: RegisterStore, job: str, patience: Patience) -> None:
        self._store = store
        self._job = job
        self._patience = patience
        self._last: Stored | None = None  # what was seen last; a compare-and-set tells if it holds
        self._seen: JobState | None = None  # the same, never forgotten: a register does not go back

    @property
    def last(self) -> JobState | None:
        """What was seen or put in place last; None where that is not known. It may be out of date."""
        return None if self._last is None else self._last.state

    @property
    def place(self) -> str:
        """Where it lies, for people."""
        return place_of(self._store, self._job)

    @property
    def shown_place(self) -> str:
        """For errors: see ``shown_place_of``."""
        return shown_place_of(self._store, self._job)

    def load(self) -> JobState | None:
        """The present state; None where the job has none yet.

        Raises:
            RegisterLostError: it is gone, or older than what this process has seen of it.
        """
        stored = self._patience.retry(self._look)
        return None if stored is None else stored.state

    def change(
        self, rule: Rule, swap: Swap | None = None, permission: Permission | None = None
    ) -> JobState:
        """Apply ``rule`` to the present state, over and over, until its result is in place.

        It begins with the state that was seen last, which saves a look: the compare-and-set tells
        whether that is still the present one. To refuse, or to find nothing to do, it looks anew.

        A reply that is lost is not guessed: the state is loaded again, and the rule answers
        ``Unchanged`` where the change took effect after all. Where somebody else was first it is
        tried again after a pause, as where the store does not answer.

        Args:
            swap: puts the new state in place; the store's compare-and-set where not given.
            permission: is asked before each try to put the new state in place.

        Returns:
            the state that the rule led to.

        Raises:
            ProtocolError: the rule refuses, or the register was lost (``load``).
            TargetError: the store does not answer for good; the change may have taken effect.
            ContentionError: others were first each time; the change has not taken effect.
            NotPreparedError: ``permission`` is refused; a try before may still take effect.
        """
        lost = 0

        def once() -> JobState:
            nonlocal lost
            last = self._last
            verdict = None if last is None else rule(last.state)
            if not isinstance(verdict, Changed):
                last = self._look()
                verdict = rule(None if last is None else last.state)
            if isinstance(verdict, Refused):
                raise verdict.error
            if isinstance(verdict, Unchanged):
                return verdict.state
            deadline = None if permission is None else permission.ask()
            self._last = None  # until the reply is here
            expected = None if last is None else last.version
            if swap is None:
                swapped = self._swap(expected, verdict.state, deadline)
            else:
                swapped = swap(expected, verdict.state)
            if isinstance(swapped, Conflict):
                lost += 1
                raise _overtaken(self._job, lost)
            self._last = Stored(verdict.state, swapped)
            self._seen = verdict.state
            return verdict.state

        return self._patience.retry(once)

    def _swap(
        self, expected: Version | None, state: JobState, deadline: float | None
    ) -> Version | Conflict:
        if deadline is not None and isinstance(self._store, Punctual):
            return self._store.compare_and_set_by(self._job, expected, state, deadline)
        return self._store.compare_and_set(self._job, expected, state)

    def _look(self) -> Stored | None:
        self._last = None
        found = self._store.load(self._job)
        state = None if found is None else found.state
        if self._seen is not None:
            why = births.went_back(state, self._seen)
            if why is not None:
                raise births.gone(self._job, why, self.shown_place)
        self._seen = state
        self._last = found
        return found


def _overtaken(job: str, times: int) -> ContentionError:
    return ContentionError(
        f"The job's register was changed by others first, {times} time(s) in a row.",
        job=job,
        remedy="see that only one query runs under this job name; then restart.",
    )
