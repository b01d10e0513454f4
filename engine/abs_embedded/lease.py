"""High availability: one leader, passive standbys, a lease in a register.

The lease is for liveness only. Safety rests on the job's own register: a standby that takes over
raises the generation, so an old leader that still runs can decide nothing (I5). A standby takes
over once it has seen the lease unchanged for its whole length by its own clock. No clocks are
compared (Gray and Cheriton 1989 need them synchronised; this needs only that they run at about one
speed).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Thread

from abs_core.contracts import Conflict, RegisterStore, Version
from abs_core.errors import FencedError, TargetError
from abs_core.model import JobState, job_key
from abs_core.patience import DEFAULT_PATIENCE, Patience

HELD, FREE, DONE = "held", "free", "done"


@dataclass(slots=True)
class Lease:
    """One process's view of a job's lease.

    The lease is a register's cell under ``JOB@leader``: ``run`` is the holder, ``generation`` the
    term, ``frontier`` counts renewals, so that each changes the cell, ``lineage`` identifies one
    acquisition, and ``target`` is ``held``, ``free`` or ``done``.

    Args:
        seconds: without a renewal for so long, a standby takes over.
        patience: of a standby with a register that does not answer.
        clock: in seconds.
    """

    store: RegisterStore
    job: str
    seconds: float
    holder: str
    patience: Patience = DEFAULT_PATIENCE
    clock: Callable[[], float] = time.monotonic
    _version: Version | None = None
    _state: JobState | None = None
    _since: float = 0.0
    """When this process has first seen the version, or written it."""

    def acquire(self, stop: Event) -> bool:
        """Wait until this process leads; False if the job is done, or ``stop`` is set.

        Raises TargetError if the register does not answer within ``patience``.
        """
        while not stop.is_set():
            leads = self.attempt()
            if leads is not None:
                return leads
            stop.wait(self.seconds / 10)
        return False

    def attempt(self) -> bool | None:
        """Look once: True if this process leads now, False if the job is done, None if it must wait."""
        stored = self.patience.retry(lambda: self.store.load(self._key))
        fresh = JobState(secrets.token_hex(8), self._key, FREE, "lease", 0, "", frontier=0)
        state, version = (stored.state, stored.version) if stored else (fresh, None)
        if state.target == DONE:
            return False
        if version != self._version:
            self._version, self._since = version, self.clock()
        expired = state.target == FREE or self.clock() - self._since >= self.seconds
        return True if expired and self._take(version, state) else None

    def keep(self) -> bool:
        """Renew; False if another process has taken over, or may have, as no renewal gets through."""
        try:
            self.renew()
        except FencedError:
            return False
        except Exception:  # noqa: BLE001 - a register may be anybody's; nobody else would see it
            return self.clock() - self._since < self.seconds
        return True

    def renew(self) -> None:
        """Renew the lease.

        Raises FencedError if another process has taken over, TargetError if the register does not
        answer.
        """
        assert self._state is not None, "acquire it first"
        self._swap(self._version, replace(self._state, frontier=(self._state.frontier or 0) + 1))

    def release(self, *, done: bool) -> None:
        """Let a standby continue at once; or end, if the job is done."""
        assert self._state is not None, "acquire it first"
        self._swap(self._version, replace(self._state, target=DONE if done else FREE))

    @property
    def _key(self) -> str:
        return job_key(self.job, "leader")

    def _take(self, version: Version | None, state: JobState) -> bool:
        taken = replace(
            state,
            target=HELD,
            run=self.holder,
            # Of this taking alone: two processes may have been given one name.
            lineage=f"lease-{secrets.token_hex(8)}",
            generation=state.generation + 1,
        )
        try:
            self.patience.retry(lambda: self._swap(version, taken))
        except FencedError:
            return False
        return True

    def _swap(self, expected: Version | None, state: JobState) -> None:
        swapped = self.store.compare_and_set(self._key, expected, state)
        if isinstance(swapped, Conflict):
            # The request may have come twice, or be a second try after a lost reply: then the first one
            # won. No other process writes this state: its lineage is of this process's taking.
            stored = self.store.load(self._key)
            if stored is None or stored.state != state:
                raise FencedError(
                    "Another process leads this job now.",
                    job=self.job,
                    remedy="none, if a standby took over; this process must stop.",
                )
            swapped = stored.version
        self._version, self._state, self._since = swapped, state, self.clock()


def lead(
    lease: Lease, run: Callable[[Event], None], stop: Event, leading: Callable[[], None]
) -> bool:
    """Wait as a standby, then run the job as its leader; returns whether this process led.

    Args:
        run: runs the job until its data ends, or the event is set.
        leading: called when this process has become the leader.

    Raises:
        FencedError: another process took over while this one led.
        AbsError: from ``run``; the lease is then free at once.
    """
    if not lease.acquire(stop):
        return False
    leading()
    ended, lost = Event(), Event()

    def renewing() -> None:
        while not ended.wait(lease.seconds / 4):
            if not lease.keep():
                lost.set()
                stop.set()
                return

    renewal = Thread(target=renewing, name="lease", daemon=True)
    renewal.start()
    done = False
    try:
        run(stop)
        done = not stop.is_set()
    finally:
        ended.set()
        renewal.join()
        if not lost.is_set():
            with suppress(TargetError, FencedError):
                lease.release(done=done)
    if lost.is_set():
        raise FencedError(
            "This process lost its lease while it led the job.",
            job=lease.job,
            remedy="none, if a standby took over.",
        )
    return True
