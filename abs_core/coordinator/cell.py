"""Loads one job's register cell, or changes it by a rule, in spite of lost requests and replies."""

from __future__ import annotations

from collections.abc import Callable

from abs_core.births import rules as births
from abs_core.certificate import place_of
from abs_core.contracts import Conflict, RegisterStore, Stored, Version
from abs_core.coordinator.permission import Permission
from abs_core.errors import ContentionError
from abs_core.model import JobState
from abs_core.patience import Patience
from abs_core.protocol import Changed, Refused, RunIdentity, Unchanged, Verdict, generation_of

Rule = Callable[[JobState | None], Verdict]
Swap = Callable[[Version | None, JobState], Version | Conflict]


class RegisterCell:
    """A job's cell in a register store."""

    def __init__(self, store: RegisterStore, job: str, patience: Patience) -> None:
        self._store = store
        self._job = job
        self._patience = patience
        self._last: Stored | None = None  # seen last; a compare-and-set finds out if it is outdated
        self._seen: JobState | None = None  # the same, kept: it detects a register that went back
        self.changed = False
        """Whether the last ``change`` was made here; True also where its reply was lost."""

    @property
    def last(self) -> JobState | None:
        """The state seen or stored last, which may be out of date; None if unknown."""
        return None if self._last is None else self._last.state

    @property
    def place(self) -> str:
        """Display name of the cell's location."""
        return place_of(self._store, self._job)

    @property
    def shown_place(self) -> str:
        """The location for errors, with the option that sets it."""
        option = f" (option {self._store.option})" if self._store.option else ""
        return f"{self.place}{option}"

    def load(self) -> JobState | None:
        """The present state; None if the job has none yet.

        Raises:
            RegisterLostError: it is gone, or older than a state that this process has seen.
        """
        stored = self._patience.retry(self._look)
        return None if stored is None else stored.state

    def present(self, who: RunIdentity) -> JobState:
        """The state, which must be there.

        Raises:
            RegisterLostError: it is missing, although this run has started.
        """
        state = self.load()
        if state is None:
            raise births.missing_verdict(who, self.shown_place).error
        return state

    def mine(self, who: RunIdentity) -> JobState:
        """The present state; raises ``FencedError`` if another run holds the generation."""
        state = self.present(who)
        generation = generation_of(state, who)
        if isinstance(generation, Refused):
            raise generation.error
        return state

    def change(
        self, rule: Rule, swap: Swap | None = None, permission: Permission | None = None
    ) -> JobState:
        """Apply ``rule`` to the present state and store the result, with retries; return the new state.

        It begins with the state seen last, and loads the cell only before it refuses or finds nothing
        to do. After a lost reply it loads the state again; the rule returns ``Unchanged`` if the change
        took effect. After a conflict it retries with a pause, as when the store does not answer.

        Args:
            swap: stores the new state; default: the store's compare-and-set.
            permission: asked before each attempt to store.

        Raises:
            ProtocolError: the rule refuses, or the register was lost (``load``).
            TargetError: the store does not answer; the change may have taken effect.
            ContentionError: every attempt met a conflict; the change has not taken effect.
            NotPreparedError: ``permission`` refused; an earlier attempt may still take effect.
        """
        lost = 0
        self.changed = False

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
            unsure, self.changed = self.changed, True  # unless a conflict says otherwise
            if swap is None:
                swapped = self._store.compare_and_set(self._job, expected, verdict.state, deadline)
            else:
                swapped = swap(expected, verdict.state)
            if isinstance(swapped, Conflict):
                self.changed = unsure
                lost += 1
                raise _overtaken(self._job, lost)
            self._last = Stored(verdict.state, swapped)
            self._seen = verdict.state
            return verdict.state

        return self._patience.retry(once)

    def _look(self) -> Stored | None:
        self._last = None
        found = self._store.load(self._job)
        state = None if found is None else found.state
        if self._seen is not None:
            why = births.went_back(state, self._seen)
            if why is not None:
                raise births.lost_error(self._job, why, self.shown_place)
        self._seen = state
        self._last = found
        return found


def _overtaken(job: str, times: int) -> ContentionError:
    return ContentionError(
        f"Another process changed the job's register first, {times} time(s) in a row.",
        job=job,
        remedy="make sure that only one query runs under this job name, then restart it.",
    )
