"""Retries calls to a system that does not answer, with backoff and a time limit."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from abs_core.errors import AbsError, TargetError
from abs_core.patience.waiting import waiting

T = TypeVar("T")

DEFAULT_SECONDS = 180.0
"""Default of the option ``patience``, in seconds."""

MAX_PAUSE = 2.0
"""Between two calls, in seconds."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of retrying. All of them follow from ``seconds``, see docs/how-to/when-it-stops.md.

    Args:
        seconds: how long to retry, with backoff and jitter; a running request may exceed it, up to its
            own limit.
        first_pause: longest pause after the first failure, in seconds; it doubles, up to 2 seconds.
        request: time limit of a single request, in seconds.
        job: for log lines and errors.
        system: name and location of the system, without secrets; for log lines and errors.
        among: the single systems, if there are several; an error that knows its system names it.
    """

    seconds: float = DEFAULT_SECONDS
    first_pause: float = 0.05
    request: float = 30.0
    job: str | None = None
    system: str = ""
    among: tuple[str, ...] = ()

    @property
    def to_commit(self) -> float:
        """Seconds that a handle must have left after its decision, which is the longest commit."""
        return self.seconds + self.request

    @property
    def to_decide(self) -> float:
        """Seconds that a handle must have left before it is decided."""
        return self.to_commit + self.request

    def at_most(self, seconds: float) -> Patience:
        """The same patience, for no longer than this."""
        return replace(self, seconds=min(seconds, self.seconds))

    def retry(self, call: Callable[[], T], given_up: threading.Event | None = None) -> T:
        """Call until it returns, raises an error that is not retryable, or time is up.

        A wait of some seconds is logged when it begins, at intervals, and when it ends.

        Args:
            given_up: set by another thread to stop further calls.

        Raises:
            TargetError: time is up; names the system and the time waited.
            AbsError: ``given_up`` was set, or the error is not retryable.
        """
        began = time.monotonic()
        with waiting(self.job, self.system, self.seconds) as wait:
            for attempt in itertools.count():
                # Nothing here keeps the error: by its traceback it refers to all that failed by it,
                # open clients too, which only the garbage collector would then close.
                try:
                    return call()
                except TargetError as error:
                    if not error.retryable:
                        raise
                    waited = time.monotonic() - began
                    if waited >= self.seconds:
                        error.gave_up(waited, self._system_of(error), self.job)
                        raise
                    wait.because(error, self._system_of(error))
                longest = min(MAX_PAUSE, self.first_pause * 2.0 ** min(attempt, 60))
                pause = random.uniform(0.0, longest)  # noqa: S311 - no secret
                if (given_up or threading.Event()).wait(pause):
                    raise AbsError(
                        "Retrying was cancelled: another part of the job failed, or was closed.",
                        job=self.job,
                    )
        raise AssertionError("it is called until it returns or raises")

    def _system_of(self, error: BaseException | None) -> str:
        """The system that failed; all of them if the error does not name one."""
        kind = error.system if isinstance(error, AbsError) else ""
        failed = [one for one in self.among if kind and one.startswith(f"{kind} at ")]
        return " or ".join(failed) or self.system


def several(all_of_them: Iterable[Patience]) -> Patience:
    """Patience with several systems at once: the longest of the single limits."""
    every = list(all_of_them)
    among = tuple(dict.fromkeys(one.system for one in every))
    longest = max(every, key=lambda one: one.seconds)
    return replace(longest, system=" or ".join(among), among=among)


DEFAULT_PATIENCE = Patience()
