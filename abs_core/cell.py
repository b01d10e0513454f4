"""One job's register cell, with patience: load it, or change it by a rule, whatever gets lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from abs_core.contracts import Conflict, RegisterStore, Stored, Version
from abs_core.errors import TargetError
from abs_core.model import JobState
from abs_core.protocol import Changed, Refused, Unchanged, Verdict

T = TypeVar("T")
Rule = Callable[[JobState | None], Verdict]
Swap = Callable[[Version | None, JobState], Version | Conflict]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try.

    Args:
        seconds: for how long a target that does not answer is tried again, with backoff and jitter.
        min_seconds_left: a handle that its target aborts sooner than this is not decided any more.
        first_pause: longest pause after the first failure, in seconds; it doubles, up to 2 seconds.
    """

    seconds: float = 60.0
    min_seconds_left: float = 30.0
    first_pause: float = 0.05

    def retry(self, call: Callable[[], T]) -> T:
        """Call until it returns, or raises what a retry cannot help, or time is up."""
        retrying = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, TargetError) and e.retryable),
            wait=wait_random_exponential(multiplier=self.first_pause, max=2.0),
            stop=stop_after_delay(self.seconds),
            reraise=True,
        )
        return retrying(call)


DEFAULT_PATIENCE = Patience()


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

    @property
    def last(self) -> JobState | None:
        """What was seen or put in place last; None where that is not known. It may be out of date."""
        return None if self._last is None else self._last.state

    def load(self) -> JobState | None:
        """The present state; None where the job has none yet."""
        stored = self._patience.retry(self._look)
        return None if stored is None else stored.state

    def change(self, rule: Rule, swap: Swap | None = None) -> JobState:
        """Apply ``rule`` to the present state, over and over, until its result is in place.

        It begins with the state that was seen last, which saves a look: the compare-and-set tells
        whether that is still the present one. To refuse, or to find nothing to do, it looks anew.

        A reply that is lost is not guessed: the state is loaded again, and the rule answers
        ``Unchanged`` where the change took effect after all.

        Args:
            swap: puts the new state in place; the store's compare-and-set where not given.

        Returns:
            the state that the rule led to.

        Raises:
            ProtocolError: the rule refuses.
            TargetError: the store does not answer for good; the change may have taken effect.
        """

        def once() -> JobState | None:
            last = self._last
            verdict = None if last is None else rule(last.state)
            if not isinstance(verdict, Changed):
                last = self._look()
                verdict = rule(None if last is None else last.state)
            if isinstance(verdict, Refused):
                raise verdict.error
            if isinstance(verdict, Unchanged):
                return verdict.state
            self._last = None  # until the reply is here
            expected = None if last is None else last.version
            if swap is None:
                swapped = self._store.compare_and_set(self._job, expected, verdict.state)
            else:
                swapped = swap(expected, verdict.state)
            if isinstance(swapped, Conflict):
                return None
            self._last = Stored(verdict.state, swapped)
            return verdict.state

        while (state := self._patience.retry(once)) is None:
            pass  # somebody else changed the cell first: look again
        return state

    def _look(self) -> Stored | None:
        self._last = None
        self._last = self._store.load(self._job)
        return self._last
