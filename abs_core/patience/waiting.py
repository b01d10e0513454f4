"""Logs that this process waits for an external system, and for how long.

One thread of the process checks all waits twice a second, so that a single hanging request is logged
too. It ends when there are no waits.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from abs_core.errors import AbsError

LOGGER = "abs_core.waiting"

FAILED_AFTER_SECONDS = 1.0
"""Seconds until a wait after an error is logged; most are shorter."""

SILENT_AFTER_SECONDS = 5.0
"""The same for a request without an error or answer, which may just take long."""

AGAIN_SECONDS = 30.0
"""Seconds between further lines."""

_TICK = 0.5

_log = logging.getLogger(LOGGER)
_lock = threading.Lock()
_retried: dict[str | None, tuple[int, float]] = {}
_waits: set[Wait] = set()
_watched = False


def _forked() -> None:
    """Reset in a forked child, which has none of its parent's other threads."""
    global _lock, _watched
    _lock, _watched = threading.Lock(), False
    _waits.clear()


os.register_at_fork(after_in_child=_forked)


class Wait:
    """One wait, from its first request to the answer.

    Args:
        system: name and location of the system, without secrets.
        limit: seconds after which the caller gives up.
        silent_seconds: seconds until it is logged if no request has failed; None:
            ``SILENT_AFTER_SECONDS``.
    """

    def __init__(
        self,
        job: str | None,
        system: str,
        limit: float,
        silent_seconds: float | None = None,
    ) -> None:
        self._of = job
        self._job = "" if job is None else f"job {job}: "
        self._system = system or "an answer"
        self._limit = limit
        self._began = self._next = time.monotonic()
        self._next += SILENT_AFTER_SECONDS if silent_seconds is None else silent_seconds
        self._why = ""
        self._told = False
        self._retries = 0

    def because(self, error: BaseException | None, system: str = "") -> None:
        """Set the last error, as the reason of the wait.

        Args:
            system: the system that failed, if there are several.
        """
        self._system = system or self._system
        self._retries += 1
        if not self._why:
            self._next = min(self._next, self._began + FAILED_AFTER_SECONDS)
        self._why = error.what if isinstance(error, AbsError) else str(error)

    def look(self, now: float) -> None:
        """Log the wait if a line is due."""
        if now < self._next:
            return
        how = "still waiting" if self._told else "waiting"
        self._told, self._next = True, now + AGAIN_SECONDS
        _log.warning(
            "%s%s for %s for %.0f s now, %.0f s at most%s",
            self._job,
            how,
            self._system,
            now - self._began,
            self._limit,
            f": {self._why}" if self._why else "",
        )

    def ended(self, *, well: bool) -> None:
        """Log the end of the wait if its begin was logged; count its retries."""
        seconds = time.monotonic() - self._began
        if self._retries:
            with _lock:
                retries, waited = _retried.get(self._of, (0, 0.0))
                _retried[self._of] = retries + self._retries, waited + seconds
        if self._told:
            how = "answers again" if well else "did not answer in time"
            _log.warning("%s%s %s, after %.0f s", self._job, self._system, how, seconds)


def retried(job: str | None) -> tuple[int, float]:
    """Retries of this process so far, and the seconds of calls that were retried.

    Args:
        job: of waits that know their job; None: of all.
    """
    with _lock:
        counts = [_retried.get(job, (0, 0.0))] if job is not None else list(_retried.values())
    return sum(retries for retries, _ in counts), sum(seconds for _, seconds in counts)


@contextmanager
def waiting(
    job: str | None, system: str, limit: float, *, silent_seconds: float | None = None
) -> Iterator[Wait]:
    """Context of a wait for ``system``; see ``Wait``."""
    wait = Wait(job, system, limit, silent_seconds)
    with _lock:
        _waits.add(wait)
        _watch()
    well = False
    try:
        yield wait
        well = True
    finally:
        with _lock:
            _waits.discard(wait)
        wait.ended(well=well)


def _watch() -> None:
    """Start the watching thread if none runs. Call under the lock."""
    global _watched
    if not _watched:
        _watched = True
        threading.Thread(target=_look, name="abs-waiting", daemon=True).start()


def _look() -> None:
    global _watched
    while True:
        time.sleep(_TICK)
        with _lock:
            if not _waits:
                _watched = False
                return
            due = list(_waits)
        for wait in due:
            wait.look(time.monotonic())
