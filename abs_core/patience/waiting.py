"""Tells people, in the log, that this process waits for another system, and for how long already.

One thread of the process looks twice a second at what is being waited for, so that a line comes also
where a single request hangs. It ends when there is nothing to look at.
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
"""A wait after an error is told of when it has lasted for so long: most are over at once."""

SILENT_AFTER_SECONDS = 5.0
"""The same for a request that has neither failed nor been answered; it may just be a long one."""

AGAIN_SECONDS = 30.0
"""The interval of further lines."""

_TICK = 0.5

_log = logging.getLogger(LOGGER)
_lock = threading.Lock()
_waits: set[Wait] = set()
_watched = False


def _forked() -> None:
    """Begin anew: of its parent's threads a fork has only the one that forked."""
    global _lock, _watched
    _lock, _watched = threading.Lock(), False
    _waits.clear()


os.register_at_fork(after_in_child=_forked)


class Wait:
    """One wait, from its first request to the answer.

    Args:
        job: for whom, where known.
        system: what is waited for, and where it is, without secrets.
        limit: seconds after which the wait is given up.
        silent_seconds: after so long it is told of, where no request has failed; None:
            ``SILENT_AFTER_SECONDS``.
    """

    def __init__(
        self,
        job: str | None,
        system: str,
        limit: float,
        silent_seconds: float | None = None,
    ) -> None:
        self._job = "" if job is None else f"job {job}: "
        self._system = system or "an answer"
        self._limit = limit
        self._began = self._next = time.monotonic()
        self._next += SILENT_AFTER_SECONDS if silent_seconds is None else silent_seconds
        self._why = ""
        self._told = False

    def because(self, error: BaseException | None, system: str = "") -> None:
        """Note why it goes on: the last error.

        Args:
            system: what has failed, of all that is waited for.
        """
        self._system = system or self._system
        if not self._why:
            self._next = min(self._next, self._began + FAILED_AFTER_SECONDS)
        self._why = error.what if isinstance(error, AbsError) else str(error)

    def look(self, now: float) -> None:
        """Tell of it, if it is time to."""
        if now < self._next:
            return
        how = "still waiting" if self._told else "waiting"
        self._told, self._next = True, now + AGAIN_SECONDS
        _log.warning(
            "%s%s for %s for %.0f s now, %.0f s at most%s",
            *(self._job, how, self._system, now - self._began, self._limit),
            f": {self._why}" if self._why else "",
        )

    def ended(self, *, well: bool) -> None:
        """Tell that it is over, if anything was told."""
        if self._told:
            seconds = time.monotonic() - self._began
            how = "answers again" if well else "did not answer in time"
            _log.warning("%s%s %s, after %.0f s", self._job, self._system, how, seconds)


@contextmanager
def waiting(
    job: str | None, system: str, limit: float, *, silent_seconds: float | None = None
) -> Iterator[Wait]:
    """While it lasts, this process waits for ``system``; see ``Wait``."""
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
    """Have a thread look, unless one does. Called under the lock."""
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
