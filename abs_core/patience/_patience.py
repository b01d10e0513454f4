"""How long a system that does not answer is waited for, and how people are told of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from abs_core.errors import AbsError, TargetError
from abs_core.patience.waiting import waiting

T = TypeVar("T")

DEFAULT_SECONDS = 180.0
"""The option ``patience`` where it is not given."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. All limits of waiting follow from ``seconds``: see docs/how-to/operations.md.

    Args:
        seconds: for how long a target that does not answer is tried again, with backoff and jitter.
            A request that is under way by then may take until its own limit.
        first_pause: longest pause after the first failure, in seconds; it doubles, up to 2 seconds.
        request: how long a request that is sent in time may take.
        job: for whom; named in log lines and errors.
        system: what is waited for, and where it is, without secrets; named there, too.
        among: each of them, where that is several; an error that knows its system names that one.
    """

    seconds: float = DEFAULT_SECONDS
    first_pause: float = 0.05
    request: float = 30.0
    job: str | None = None
    system: str = ""
    among: tuple[str, ...] = ()

    @property
    def to_commit(self) -> float:
        """Seconds that a handle must have left once it is decided: committing takes so long at most."""
        return self.seconds + self.request

    @property
    def to_decide(self) -> float:
        """Seconds that a handle must have left before it is decided."""
        return self.to_commit + self.request

    def retry(self, call: Callable[[], T], given_up: threading.Event | None = None) -> T:
        """Call until it returns, or raises what a retry cannot help, or time is up.

        Log lines tell of a wait of some seconds when it begins, at intervals, and when it ends.

        Args:
            given_up: once it is set, by another thread, there is no further call.

        Raises:
            TargetError: time is up; it says for how long what was waited for.
            AbsError: it was given up.
        """
        began = time.monotonic()
        with waiting(self.job, self.system, self.seconds) as wait:

            def failed(state: RetryCallState) -> None:
                assert state.outcome is not None
                error = state.outcome.exception()
                wait.because(error, self._system_of(error))

            def pause(seconds: float) -> None:
                if (given_up or threading.Event()).wait(seconds):
                    raise AbsError("What was tried again was given up.", job=self.job)

            retrying = Retrying(
                retry=retry_if_exception(_may_pass),
                wait=wait_random_exponential(multiplier=self.first_pause, max=2.0),
                stop=stop_after_delay(self.seconds),
                before_sleep=failed,
                sleep=pause,
                reraise=True,
            )
            try:
                return retrying(call)
            except TargetError as error:
                if _may_pass(error):
                    error.gave_up(time.monotonic() - began, self._system_of(error), self.job)
                raise

    def _system_of(self, error: BaseException | None) -> str:
        """What has failed of all that is waited for; all of it, where the error does not know."""
        kind = error.system if isinstance(error, AbsError) else ""
        failed = [one for one in self.among if kind and one.startswith(f"{kind} at ")]
        return " or ".join(failed) or self.system


def several(all_of_them: Iterable[Patience]) -> Patience:
    """To wait for several systems at once: the longest patience with one of them, for each."""
    every = list(all_of_them)
    among = tuple(dict.fromkeys(one.system for one in every))
    longest = max(every, key=lambda one: one.seconds)
    return replace(longest, system=" or ".join(among), among=among)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, TargetError) and error.retryable


DEFAULT_PATIENCE = Patience()
